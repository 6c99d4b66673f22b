/* Runs a fuzz target without libFuzzer, and so with the stable compiler: inputs are drawn at random
 * and from examples that are damaged, and nothing is learned from the paths they take.
 *
 *   TARGET RUNS SEED FIRST LONGEST <EXAMPLES     (lines of hexadecimal digits, one example each)
 *
 * Input K of a seed does not depend on those before: whatever fails can be repeated alone. */
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { EXAMPLES_MAX = 256, LINE_MAX_BYTES = 1 << 16, CHANGES_MAX = 8 };

static struct { uint8_t *bytes; size_t size; } examples[EXAMPLES_MAX];
static size_t example_count;
static uint8_t *input;
static size_t input_size, longest;
static uint64_t state, seed, current;

/* Steele, Lea, Flood: Fast splittable pseudorandom number generators (2014). */
static uint64_t next(void) {
    uint64_t z = state += 0x9e3779b97f4a7c15;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
    z = (z ^ z >> 27) * 0x94d049bb133111eb;
    return z ^ z >> 31;
}

static size_t below(size_t limit) { return limit ? next() % limit : 0; }

/* Short ones more often. */
static size_t some_length(size_t limit) { return below(limit >> below(12)) + 1; }

static void random_bytes(uint8_t *at, size_t count) {
    while (count--) *at++ = (uint8_t)next();
}

static void remove_bytes(size_t at, size_t count) {
    if (count > input_size - at) count = input_size - at;
    memmove(input + at, input + at + count, input_size - at - count);
    input_size -= count;
}

/* Opens a gap for bytes, as far as there is room; returns its length. */
static size_t open_gap(size_t at, size_t count) {
    if (count > longest - input_size) count = longest - input_size;
    memmove(input + at + count, input + at, input_size - at);
    input_size += count;
    return count;
}

static void change(void) {
    static const uint8_t edges[] = {0, 1, 0x7f, 0x80, 0xfe, 0xff};
    size_t at = below(input_size), from, count;
    switch (below(input_size ? 8 : 1)) {
    case 0: random_bytes(input + at, open_gap(at, some_length(64))); break;
    case 1: input[at] ^= (uint8_t)(1 << below(8)); break;
    case 2: input[at] = edges[below(sizeof edges)]; break;
    case 3: input[at] = (uint8_t)next(); break;
    case 4: remove_bytes(at, some_length(64)); break;
    case 5: input_size = at; break;
    case 6: /* A piece of itself once more. */
        from = below(input_size);
        count = some_length(input_size - from);
        if (count > input_size - at) count = input_size - at;
        if (count > input_size - from) count = input_size - from;
        memmove(input + at, input + from, count);
        break;
    default: /* A wrong length or number. */
        count = (size_t)1 << below(4);
        if (count <= input_size - at) memset(input + at, edges[below(sizeof edges)], count);
    }
}

static void draw(uint64_t which) {
    state = seed ^ which * 0xd1342543de82ef95;
    next();
    if (example_count && below(8)) {
        size_t chosen = below(example_count);
        /* Without the first bytes of some: what one layer unpacks is another's input. */
        size_t skip = below(4) ? 0 : below(examples[chosen].size);
        input_size = examples[chosen].size - skip;
        if (input_size > longest) input_size = longest;
        memcpy(input, examples[chosen].bytes + skip, input_size);
        for (size_t changes = below(CHANGES_MAX); changes--;) change();
    } else {
        input_size = some_length(longest);
        random_bytes(input, input_size);
    }
}

static void say_what_failed(int signal_number) {
    fprintf(stderr, "\ninput %llu of seed %llu failed; again: --seed %llu --first %llu --runs 1\n",
            (unsigned long long)current, (unsigned long long)seed, (unsigned long long)seed,
            (unsigned long long)current);
    for (size_t i = 0; i < input_size; i++) fprintf(stderr, "%02x", input[i]);
    fputc('\n', stderr);
    signal(signal_number, SIG_DFL);
    raise(signal_number);
}

static void *get(size_t size) {
    void *memory = malloc(size);
    if (!memory) {
        fputs("out of memory\n", stderr);
        exit(2);
    }
    return memory;
}

static void read_examples(void) {
    static char line[2 * LINE_MAX_BYTES + 2];
    while (fgets(line, sizeof line, stdin)) {
        size_t size = strspn(line, "0123456789abcdef") / 2;
        if (!size || example_count == EXAMPLES_MAX) continue;
        uint8_t *bytes = get(size);
        for (size_t i = 0; i < size; i++) {
            char two[3] = {line[2 * i], line[2 * i + 1], 0};
            bytes[i] = (uint8_t)strtoul(two, NULL, 16);
        }
        examples[example_count].bytes = bytes;
        examples[example_count++].size = size;
    }
}

int main(int argc, char **argv) {
    if (argc != 5) {
        fprintf(stderr, "usage: %s RUNS SEED FIRST LONGEST <EXAMPLES\n", argv[0]);
        return 2;
    }
    uint64_t runs = strtoull(argv[1], NULL, 10), first = strtoull(argv[3], NULL, 10);
    seed = strtoull(argv[2], NULL, 10);
    longest = strtoull(argv[4], NULL, 10);
    input = get(longest + 1);
    read_examples();
    LLVMFuzzerInitialize(&argc, &argv);
    signal(SIGABRT, say_what_failed);
    signal(SIGSEGV, say_what_failed);
    clock_t begun = clock();
    for (current = first; current < first + runs; current++) {
        draw(current);
        LLVMFuzzerTestOneInput(input, input_size);
    }
    double seconds = (double)(clock() - begun) / CLOCKS_PER_SEC;
    printf("%llu inputs of seed %llu from %llu, %zu examples: none failed, %.1f CPU s\n",
           (unsigned long long)runs, (unsigned long long)seed, (unsigned long long)first,
           example_count, seconds);
    return 0;
}
