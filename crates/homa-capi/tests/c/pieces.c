/* Messages in pieces: requests that are read while they arrive, by a thread that waits and by a
 * loop that polls; messages that are written while they are sent; and how both end.
 */
#include "check.h"
#include <pthread.h>
#include <sys/wait.h>

enum { LONG = 3000000, WINDOW = 100000, CALLS = 4 };
static char sent[LONG], got[LONG];

/* A server that reads requests while they arrive. */
static int early(struct sockaddr_in *to)
{
    struct homa_options options = HOMA_OPTIONS_INIT;
    options.early = WINDOW;
    return serve(to, &options);
}

/* Begins a call of LONG bytes, and sends the first of them. */
static uint64_t begin(int client, struct sockaddr_in to, size_t first, uint32_t deadline_ms)
{
    struct homa_send_options options = HOMA_SEND_OPTIONS_INIT;
    uint64_t id;
    options.deadline_ms = deadline_ms;
    CHECK(homa_send_begin(client, LONG, AT(to), &id, &options) == 0);
    CHECK(homa_write(client, sent, first, id) == 0);
    return id;
}

static uint64_t receive(int server, int length)
{
    uint64_t id = 0;
    CHECK(homa_recv(server, NULL, 0, HOMA_RECV_REQUEST, NULL, 0, &id) == length);
    return id;
}

/* Reads the rest of a request, and compares it. */
static void read_all(int server, uint64_t id, int length, size_t step)
{
    int more, at = 0;
    memset(got, 0, sizeof got);
    while ((more = homa_read(server, got + at, step, 0, id)) > 0) {
        CHECK((size_t) more <= step);
        at += more;
    }
    CHECK(more == 0 && at == length && memcmp(got, sent, (size_t) length) == 0);
    CHECK(homa_read(server, got, step, 0, id) == 0);
}

/* Requests of any length, of which homa_recv copies nothing, and responses. */
static void both_ways(int client, int server, struct sockaddr_in to)
{
    static const int lengths[] = { 0, 1, 1400, 20000, LONG };
    size_t i;

    for (i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        struct homa_message message = { .id = 0 };
        int length = lengths[i], at;
        uint64_t call, id;
        CHECK(homa_send_begin(client, (size_t) length, AT(to), &call, NULL) == 0);
        for (at = 0; at < length; at += 7001)
            CHECK(homa_write(client, sent + at, length - at < 7001 ? (size_t) (length - at) : 7001,
                             call) == 0);
        FAILS(homa_write(client, sent, 1, call), EMSGSIZE);
        CHECK(homa_recv_message(server, 0, &message) == 0);
        CHECK(message.data == NULL && message.length == (size_t) length);
        id = message.id;
        homa_message_release(&message);
        read_all(server, id, length, i % 2 ? LONG : 997);
        CHECK(homa_reply_begin(server, (size_t) length, AT(message.source), id) == 0);
        for (at = 0; at < length; at += 13000)
            CHECK(homa_write(server, sent + at,
                             length - at < 13000 ? (size_t) (length - at) : 13000, id) == 0);
        FAILS(homa_write(server, sent, 1, id), EPIPE);
        FAILS(homa_read(server, got, 1, 0, id), EINVAL);
        memset(got, 0, sizeof got);
        CHECK(homa_recv(client, got, LONG, HOMA_RECV_RESPONSE, NULL, 0, &call) == length);
        CHECK(memcmp(got, sent, (size_t) length) == 0);
    }
}

static void *upload(void *argument)
{
    struct sockaddr_in to = *(struct sockaddr_in *) argument;
    int client = homa_socket(NULL, 0, NULL), i;
    uint64_t calls[CALLS];

    CHECK(client >= 0);
    for (i = 0; i < CALLS; i++)
        CHECK(homa_send(client, sent, LONG, AT(to), &calls[i]) == 0);
    for (i = 0; i < CALLS; i++)
        CHECK(homa_recv(client, NULL, 0, HOMA_RECV_RESPONSE, NULL, 0, &calls[i]) == 1);
    CHECK(homa_close(client) == 0);
    return NULL;
}

/* One thread reads several requests as they arrive, and sleeps if there is nothing to read. */
static void loop(int server, struct sockaddr_in to)
{
    static char piece[50000];
    uint64_t ids[CALLS] = { 0 }, id;
    int at[CALLS] = { 0 }, begun = 0, answered = 0, more = 0, left, read, i;
    pthread_t client;

    CHECK(pthread_create(&client, NULL, upload, &to) == 0);
    while (answered < CALLS) {
        CHECK(readable(server, 5000) == 1);
        left = homa_recv(server, NULL, 0, HOMA_RECV_NONBLOCKING, NULL, 0, &id);
        for (i = 0; i < begun && ids[i] != id; i++)
            ;
        if (i == begun)
            ids[begun++] = id;
        else
            more++;
        CHECK(left == LONG - at[i]);
        while ((read = homa_read(server, piece, sizeof piece, MSG_DONTWAIT, id)) > 0) {
            CHECK(memcmp(piece, sent + at[i], (size_t) read) == 0);
            at[i] += read;
        }
        if (read < 0) {
            CHECK(errno == EAGAIN);
            continue;
        }
        CHECK(at[i] == LONG && homa_reply(server, "k", 1, NULL, 0, id) == 0);
        answered++;
    }
    CHECK(more > 0 && readable(server, 0) == 0);
    CHECK(pthread_join(client, NULL) == 0);
}

/* The client gives up, or its deadline passes: the reader is told, once. */
static void ends(int client, int server, struct sockaddr_in to)
{
    uint64_t call = begin(client, to, 50000, 0), id = receive(server, LONG), late = 0;
    int read, at = 0;

    CHECK(homa_abort(client, call, 0) == 0);
    FAILS(homa_write(client, sent, 1, call), EPIPE);
    while ((read = homa_read(server, got, sizeof got, HOMA_RECV_NONBLOCKING, id)) > 0
           || (read < 0 && errno == EAGAIN)) {
        at += read > 0 ? read : 0;
        if (read < 0) {
            CHECK(readable(server, 5000) == 1);
            CHECK(homa_recv(server, NULL, 0, 0, NULL, 0, &late) == LONG - at && late == id);
        }
    }
    FAILS(homa_read(server, got, sizeof got, 0, id), ECANCELED);
    CHECK(homa_abort(server, id, 0) == 0);
    FAILS(homa_read(server, got, sizeof got, 0, id), EINVAL);
    FAILS(homa_recv(server, got, 1, HOMA_RECV_NONBLOCKING, NULL, 0, NULL), EAGAIN);

    late = begin(client, to, 50000, 200);
    id = receive(server, LONG);
    FAILS(homa_recv(client, got, 1, HOMA_RECV_RESPONSE, NULL, 0, &late), ETIMEDOUT);
    FAILS(homa_write(client, sent, 1, late), EPIPE);
    while (homa_read(server, got, sizeof got, 0, id) > 0)
        ;
    CHECK(errno == ETIMEDOUT || errno == ECANCELED);
    CHECK(homa_reply(server, got, 1, NULL, 0, id) == 0);

    /* A response that is given up. */
    CHECK(homa_send(client, sent, 1, AT(to), &call) == 0);
    id = receive(server, 1);
    CHECK(homa_reply_begin(server, LONG, NULL, 0, id) == 0);
    CHECK(homa_write(server, sent, 50000, id) == 0);
    CHECK(homa_abort(server, id, 0) == 0);
    FAILS(homa_recv(client, got, LONG, HOMA_RECV_RESPONSE, NULL, 0, &call), ECONNABORTED);
}

static uint64_t ask(int client, struct sockaddr_in to, uint32_t flags)
{
    struct homa_send_options options = HOMA_SEND_OPTIONS_INIT;
    struct iovec piece = { sent, 1 };
    uint64_t id;
    options.flags = HOMA_SEND_PIECES | flags;
    options.completion_cookie = 42;
    CHECK(homa_sendv(client, &piece, 1, AT(to), &id, &options) == 0);
    return id;
}

/* Responses that a thread reads, and that a loop reads which polls. */
static void responses(int client, int server, struct sockaddr_in to)
{
    static const int lengths[] = { 0, 1, 20000, LONG };
    uint64_t call, id;
    int read, at = 0;
    size_t i;

    for (i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        call = ask(client, to, i % 2 ? HOMA_SEND_PRIVATE : 0);
        id = receive(server, 1);
        CHECK(homa_reply(server, sent, (size_t) lengths[i], NULL, 0, id) == 0);
        memset(got, 0, sizeof got);
        for (at = 0; (read = homa_read(client, got + at, LONG, 0, call)) > 0; at += read)
            ;
        CHECK(read == 0 && at == lengths[i] && memcmp(got, sent, (size_t) at) == 0);
        /* The call has ended. */
        FAILS(homa_read(client, got, 1, 0, call), EINVAL);
        FAILS(homa_recv(client, got, 1, MSG_DONTWAIT, NULL, 0, NULL), EAGAIN);
    }
    call = ask(client, to, 0);
    id = receive(server, 1);
    CHECK(homa_reply(server, sent, LONG, NULL, 0, id) == 0);
    for (at = 0, read = -1; read != 0;) {
        struct homa_message message = { .id = 0 };
        CHECK(readable(client, 5000) == 1);
        CHECK(homa_recv_message(client, HOMA_RECV_NONBLOCKING, &message) == 0);
        CHECK(message.id == call && message.data == NULL && message.completion_cookie == 42);
        CHECK(message.length == (size_t) (LONG - at));
        while ((read = homa_read(client, got, 50000, MSG_DONTWAIT, call)) > 0) {
            CHECK(memcmp(got, sent + at, (size_t) read) == 0);
            at += read;
        }
        CHECK(read == 0 || errno == EAGAIN);
    }
    CHECK(at == LONG && readable(client, 0) == 0);
    /* Receives by id report a private one, which the window does not hold. */
    call = ask(client, to, HOMA_SEND_PRIVATE);
    id = receive(server, 1);
    CHECK(homa_reply(server, sent, LONG, NULL, 0, id) == 0);
    for (at = 0, read = -1; read != 0; at += read > 0 ? read : 0) {
        uint64_t of = call;
        if (read < 0)
            CHECK(homa_recv(client, NULL, 0, HOMA_RECV_RESPONSE, NULL, 0, &of) == LONG - at && of == call);
        read = homa_read(client, got, 50000, MSG_DONTWAIT, call);
    }
    CHECK(at == LONG);
    /* The server gives up, before and after its first bytes. */
    call = ask(client, to, 0);
    CHECK(homa_abort(server, receive(server, 1), 0) == 0);
    FAILS(homa_read(client, got, LONG, 0, call), ECONNABORTED);
    call = ask(client, to, HOMA_SEND_PRIVATE);
    id = receive(server, 1);
    CHECK(homa_reply_begin(server, LONG, NULL, 0, id) == 0);
    CHECK(homa_write(server, sent, 50000, id) == 0);
    CHECK(homa_read(client, got, 1, 0, call) == 1 && got[0] == sent[0]);
    CHECK(homa_abort(server, id, 0) == 0);
    while ((read = homa_read(client, got, LONG, 0, call)) > 0)
        ;
    CHECK(read == -1 && errno == ECONNABORTED);
    FAILS(homa_read(client, got, LONG, 0, call), EINVAL);
    /* The client gives up. */
    call = ask(client, to, 0);
    id = receive(server, 1);
    CHECK(homa_abort(client, call, 0) == 0);
    FAILS(homa_read(client, got, LONG, 0, call), EINVAL);
    CHECK(homa_reply(server, sent, 1, NULL, 0, id) == 0);
}

static void mistakes(int client, int server, struct sockaddr_in to)
{
    uint64_t call, id;
    FAILS(homa_send_begin(client, 1, AT(to), NULL, NULL), EFAULT);
    FAILS(homa_send_begin(client, 1, NULL, 0, &call, NULL), EFAULT);
    FAILS(homa_send_begin(client, (size_t) 1 << 40, AT(to), &call, NULL), EMSGSIZE);
    FAILS(homa_send_begin(-1, 1, AT(to), &call, NULL), EBADF);
    FAILS(homa_reply_begin(server, 1, NULL, 0, 1), EINVAL);
    FAILS(homa_write(client, sent, 1, 0), EPIPE);
    FAILS(homa_write(client, NULL, 1, 2), EFAULT);
    FAILS(homa_write(-1, sent, 1, 2), EBADF);
    FAILS(homa_read(-1, got, 1, 0, 1), EBADF);
    FAILS(homa_read(server, got, 1, 0, 0), EINVAL);
    call = begin(client, to, 50000, 0);
    id = receive(server, LONG);
    FAILS(homa_read(server, got, 0, 0, id), EINVAL);
    FAILS(homa_read(server, NULL, 1, 0, id), EFAULT);
    FAILS(homa_read(server, got, 1, HOMA_RECV_PARTIAL, id), EINVAL);
    FAILS(homa_read(client, got, 1, 0, call), EINVAL);
    FAILS(homa_reply_begin(server, (size_t) 1 << 40, NULL, 0, id), EMSGSIZE);
    /* It still waits for its answer, which may come before the request is whole. */
    CHECK(homa_read(server, got, 1, 0, id) == 1);
    CHECK(homa_reply(server, sent, 1, NULL, 0, id) == 0);
    CHECK(homa_recv(client, got, 1, HOMA_RECV_RESPONSE, NULL, 0, &call) == 1);
}

struct reading {
    int server;
    uint64_t id;
};

/* Waits for the rest of a request whose socket is closed meanwhile. */
static void *held(void *argument)
{
    struct reading *reading = argument;
    int more;
    while ((more = homa_read(reading->server, got, sizeof got, 0, reading->id)) > 0)
        ;
    CHECK(more == -1 && (errno == ESHUTDOWN || errno == EBADF));
    return NULL;
}

static void closing(int client, int server, struct sockaddr_in to)
{
    struct reading reading;
    pthread_t reader;
    char byte;
    pid_t child;
    int status;

    begin(client, to, 50000, 0);
    reading.server = server;
    reading.id = receive(server, LONG);
    /* A child has neither the reader nor the writer. */
    if ((child = fork()) == 0) {
        FAILS(homa_read(server, got, 1, 0, reading.id), EBADF);
        FAILS(homa_write(client, sent, 1, 2), EBADF);
        execl("/bin/true", "true", (char *) NULL);
        _exit(1);
    }
    CHECK(child > 0 && waitpid(child, &status, 0) == child && status == 0);
    CHECK(pthread_create(&reader, NULL, held, &reading) == 0);
    usleep(10000);
    /* It does not wait behind the thread that does. */
    while (homa_read(server, &byte, 1, MSG_DONTWAIT, reading.id) > 0)
        ;
    CHECK(errno == EAGAIN);
    CHECK(homa_close(server) == 0);
    CHECK(pthread_join(reader, NULL) == 0);
    FAILS(homa_read(server, got, 1, 0, reading.id), EBADF);
}

int main(void)
{
    struct sockaddr_in to;
    int client, server, i;

    for (i = 0; i < LONG; i++)
        sent[i] = (char) (i * 11 + i / 253);
    server = early(&to);
    CHECK((client = homa_socket(NULL, 0, NULL)) >= 0);
    both_ways(client, server, to);
    loop(server, to);
    responses(client, server, to);
    mistakes(client, server, to);
    ends(client, server, to);
    closing(client, server, to);
    CHECK(homa_close(client) == 0);
    return 0;
}
