/* Hashes uploads while they arrive, and answers each with its hash: upload [CALLS]
 *
 * Prints how long after the last bytes of 1 MB the hash is ready, and how long a call takes.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <homa.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { LENGTH = 1000000, PIECE = 65536, WINDOW = 1 << 20 };

struct answer {
    uint64_t hash, nanoseconds;
};

static int fail(const char *what)
{
    fprintf(stderr, "%s: %s\n", what, homa_strerror(errno));
    exit(1);
}

static uint64_t now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t) time.tv_sec * 1000000000 + (uint64_t) time.tv_nsec;
}

/* A hash of bytes that come in pieces: each word is mixed in once it is whole. */
struct hash {
    uint64_t state, word;
    unsigned bytes;
};

static void hash_word(struct hash *hash, uint64_t word)
{
    hash->state = (hash->state ^ word) * 0x9e3779b97f4a7c15u;
    hash->state ^= hash->state >> 29;
}

static void hash_more(struct hash *hash, const unsigned char *bytes, size_t length)
{
    for (; length > 0 && hash->bytes > 0; length--) {
        hash->word |= (uint64_t) *bytes++ << 8 * hash->bytes;
        if ((hash->bytes = (hash->bytes + 1) % 8) == 0) {
            hash_word(hash, hash->word);
            hash->word = 0;
        }
    }
    for (; length >= 8; length -= 8, bytes += 8) {
        uint64_t word;
        memcpy(&word, bytes, 8);
        hash_word(hash, word);
    }
    for (; length > 0; length--)
        hash->word |= (uint64_t) *bytes++ << 8 * hash->bytes++;
}

static uint64_t hash_end(struct hash *hash)
{
    hash_word(hash, hash->word);
    return hash->state;
}

/* Answers uploads until the socket is closed. */
static void *serve(void *argument)
{
    static unsigned char piece[PIECE];
    int sock = *(int *) argument;
    uint64_t id;

    while (homa_recv(sock, NULL, 0, HOMA_RECV_REQUEST, NULL, 0, &id) >= 0) {
        struct hash hash = { 0, 0, 0 };
        struct answer answer;
        uint64_t last = now();
        int got;
        while ((got = homa_read(sock, piece, sizeof piece, 0, id)) > 0) {
            last = now();
            hash_more(&hash, piece, (size_t) got);
        }
        if (got < 0) {
            /* The client gave up, or its deadline has passed. */
            fprintf(stderr, "an upload ended: %s\n", homa_strerror(errno));
            homa_abort(sock, id, 0);
            continue;
        }
        answer.hash = hash_end(&hash);
        answer.nanoseconds = now() - last;
        if (homa_reply(sock, &answer, sizeof answer, NULL, 0, id) < 0)
            fail("cannot answer");
    }
    return NULL;
}

/* Sends an upload in pieces, and returns its answer. */
static struct answer upload(int sock, const struct sockaddr_in *to, const unsigned char *bytes)
{
    struct answer answer;
    uint64_t id;
    size_t at;

    if (homa_send_begin(sock, LENGTH, (const struct sockaddr *) to, sizeof *to, &id, NULL) < 0)
        fail("cannot begin a call");
    for (at = 0; at < LENGTH; at += PIECE) {
        size_t length = LENGTH - at < PIECE ? LENGTH - at : PIECE;
        if (homa_write(sock, bytes + at, length, id) < 0)
            fail("cannot write");
    }
    if (homa_recv(sock, &answer, sizeof answer, HOMA_RECV_RESPONSE, NULL, 0, &id)
        != (int) sizeof answer)
        fail("no answer");
    return answer;
}

static int compare(const void *a, const void *b)
{
    uint64_t left = *(const uint64_t *) a, right = *(const uint64_t *) b;
    return (left > right) - (left < right);
}

static void print(const char *what, uint64_t *times, size_t count)
{
    qsort(times, count, sizeof *times, compare);
    printf("%-26s p50 %.1f us, p99 %.1f us\n", what, (double) times[count / 2] / 1000,
           (double) times[count * 99 / 100] / 1000);
}

int main(int argc, char **argv)
{
    static unsigned char bytes[LENGTH];
    struct homa_options options = HOMA_OPTIONS_INIT;
    struct sockaddr_in to;
    socklen_t length = sizeof to;
    size_t calls = argc > 1 ? (size_t) strtoul(argv[1], NULL, 10) : 200, i;
    uint64_t *whole = calloc(calls + 1, sizeof *whole), *after = calloc(calls + 1, sizeof *after);
    struct hash expected = { 0, 0, 0 };
    uint64_t hash;
    pthread_t server;
    int served, sock;

    for (i = 0; i < LENGTH; i++)
        bytes[i] = (unsigned char) (i * 7 + i / 251);
    hash_more(&expected, bytes, LENGTH);
    hash = hash_end(&expected);

    memset(&to, 0, sizeof to);
    to.sin_family = AF_INET;
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    options.early = WINDOW;
    served = homa_socket((struct sockaddr *) &to, sizeof to, &options);
    sock = homa_socket(NULL, 0, NULL);
    if (served < 0 || sock < 0 || homa_getsockname(served, (struct sockaddr *) &to, &length) < 0)
        fail("cannot open a socket");
    if (pthread_create(&server, NULL, serve, &served) != 0)
        fail("cannot start a thread");
    for (i = 0; i < calls; i++) {
        uint64_t begin = now();
        struct answer answer = upload(sock, &to, bytes);
        whole[i] = now() - begin;
        after[i] = answer.nanoseconds;
        if (answer.hash != hash) {
            fprintf(stderr, "call %zu: the hash of other bytes\n", i);
            return 1;
        }
    }
    print("hashed after the last byte", after, calls);
    print("whole call", whole, calls);
    if (homa_close(sock) < 0 || homa_close(served) < 0)
        fail("cannot close");
    pthread_join(server, NULL);
    free(whole);
    free(after);
    return 0;
}
