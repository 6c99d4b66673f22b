/* Tests small, partial and lent buffers, cookies, private calls, and the descriptor. */
#include "check.h"
#include <sys/select.h>
#include <time.h>

enum { LONG = 300000 };
static char sent[LONG], got[LONG];

static uint64_t call(int sock, struct sockaddr_in to, size_t length, uint64_t cookie, uint32_t flags)
{
    struct homa_send_options options = HOMA_SEND_OPTIONS_INIT;
    struct iovec pieces[3];
    uint64_t id = 0;
    pieces[0].iov_base = sent;
    pieces[0].iov_len = 1;
    pieces[1].iov_base = NULL;
    pieces[1].iov_len = 0;
    pieces[2].iov_base = sent + 1;
    pieces[2].iov_len = length - 1;
    options.completion_cookie = cookie;
    options.flags = flags;
    CHECK(homa_sendv(sock, pieces, 3, AT(to), &id, &options) == 0);
    CHECK(id != 0 && id % 2 == 0);
    return id;
}

/* Answers the next request with its bytes, in two pieces. */
static void echo(int sock)
{
    struct homa_message request = { .id = 0 };
    struct iovec pieces[2];
    CHECK(homa_recv_message(sock, HOMA_RECV_REQUEST, &request) == 0);
    CHECK(request.id % 2 == 1 && request.completion_cookie == 0);
    pieces[0].iov_base = request.data;
    pieces[0].iov_len = request.length / 2;
    pieces[1].iov_base = (char *) request.data + request.length / 2;
    pieces[1].iov_len = request.length - request.length / 2;
    CHECK(homa_replyv(sock, pieces, 2, (struct sockaddr *) &request.source, request.source_length,
                      request.id) == 0);
    homa_message_release(&request);
    homa_message_release(&request);
    CHECK(request.data == NULL);
}

/* The end of a long message is lost without HOMA_RECV_PARTIAL, and kept with it. */
static void small_buffers(int client, int server, struct sockaddr_in to)
{
    uint64_t id, first = call(client, to, LONG, 0, 0);
    int left, at = 0;

    echo(server);
    memset(got, 0, sizeof got);
    id = 0;
    CHECK(homa_recv(client, got, 10, HOMA_RECV_RESPONSE, NULL, 0, &id) == LONG && id == first);
    CHECK(memcmp(got, sent, 10) == 0 && got[10] == 0);
    FAILS(homa_recv(client, got, 10, HOMA_RECV_RESPONSE, NULL, 0, &id), EINVAL);

    first = call(client, to, LONG, 0, 0);
    echo(server);
    id = 0;
    do {
        left = homa_recv(client, got + at, 77777, HOMA_RECV_PARTIAL, NULL, 0, &id);
        CHECK(id == first && left == LONG - at);
        at += left < 77777 ? left : 77777;
    } while (at < LONG);
    CHECK(memcmp(got, sent, LONG) == 0);
    FAILS(homa_recv(client, got, 10, HOMA_RECV_PARTIAL, NULL, 0, &id), EINVAL);

    first = call(client, to, LONG, 0, 0);
    echo(server);
    id = 0;
    CHECK(homa_recv(client, NULL, 0, HOMA_RECV_PARTIAL, NULL, 0, &id) == LONG);
    CHECK(readable(client, 0) == 0);
    CHECK(homa_abort(client, first, 0) == 0);
    FAILS(homa_recv(client, got, 10, HOMA_RECV_PARTIAL, NULL, 0, &first), EINVAL);
}

/* After its answer, a request cannot be read any further. */
static void rest_of_a_request(int client, int server, struct sockaddr_in to)
{
    struct sockaddr_in from;
    uint64_t id = 0, first = call(client, to, LONG, 0, 0);

    CHECK(homa_recv(server, got, 10, HOMA_RECV_PARTIAL, AT(from), &id) == LONG);
    CHECK(homa_recv(server, got, 10, HOMA_RECV_PARTIAL, NULL, 0, &id) == LONG - 10);
    CHECK(homa_reply(server, got, 1, AT(from), id) == 0);
    FAILS(homa_recv(server, got, 10, HOMA_RECV_PARTIAL, NULL, 0, &id), EINVAL);
    CHECK(homa_recv(client, got, LONG, HOMA_RECV_RESPONSE, NULL, 0, &first) == 1);
}

/* A server knows how long its client waits, and when it has given up. */
static void remaining(int client, int server, struct sockaddr_in to)
{
    struct homa_send_options options = HOMA_SEND_OPTIONS_INIT;
    struct iovec piece = { sent, 1 };
    uint64_t call_id, id = 0, left = 0;

    options.deadline_ms = 1000000;
    CHECK(homa_sendv(client, &piece, 1, AT(to), &call_id, &options) == 0);
    CHECK(homa_recv(server, got, LONG, HOMA_RECV_REQUEST, NULL, 0, &id) == 1);
    CHECK(homa_remaining(server, id, &left) == 0);
    CHECK(left <= 1000000000 && left > 900000000);
    FAILS(homa_remaining(server, id, NULL), EFAULT);
    FAILS(homa_remaining(server, call_id, &left), EINVAL);
    CHECK(homa_abort(client, call_id, 0) == 0);
    while (left > 0) {
        CHECK(homa_remaining(server, id, &left) == 0);
        usleep(1000);
    }
    CHECK(homa_abort(server, id, 0) == 0);
    FAILS(homa_remaining(server, id, &left), EINVAL);
}

static void lent(int client, int server, struct sockaddr_in to)
{
    struct homa_message message = { .id = 0 };
    uint64_t first = call(client, to, LONG, 42, 0);
    echo(server);
    CHECK(homa_recv_message(client, 0, &message) == 0);
    CHECK(message.id == first && message.completion_cookie == 42 && message.length == LONG);
    CHECK(memcmp(message.data, sent, LONG) == 0);
    CHECK(memcmp(&message.source, &to, sizeof to) == 0);
    memset(message.data, 1, message.length);
    homa_message_release(&message);
    FAILS(homa_recv_message(client, HOMA_RECV_NONBLOCKING, &message), EAGAIN);
    CHECK(message.id == 0 && message.data == NULL);
    FAILS(homa_recv_message(client, 0, NULL), EFAULT);
}

static void descriptor(int client, int server, struct sockaddr_in to)
{
    uint64_t quiet, loud, id = 0;
    fd_set set;

    CHECK(readable(client, 0) == 0 && readable(server, 0) == 0);
    quiet = call(client, to, 100, 1, HOMA_SEND_PRIVATE);
    FD_ZERO(&set);
    FD_SET(server, &set);
    CHECK(select(server + 1, &set, NULL, NULL, NULL) == 1);
    echo(server);
    loud = call(client, to, 100, 2, 0);
    echo(server);
    CHECK(readable(client, 5000) == 1);
    CHECK(homa_recv(client, got, LONG, MSG_DONTWAIT, NULL, 0, &id) == 100 && id == loud);
    CHECK(readable(client, 0) == 0);
    CHECK(homa_recv(client, got, LONG, HOMA_RECV_RESPONSE, NULL, 0, &quiet) == 100);
}

static long now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* True if a call is answered. It may fail if the server was silent for so long that the profile
 * gives it up, as on a busy machine; the server may not have the request then. */
static int answered(int client, int server, struct sockaddr_in to, long silence_ms)
{
    struct pollfd watched[2] = { { server, POLLIN, 0 }, { client, POLLIN, 0 } };
    long begun = now_ms();
    int length;
    call(client, to, 2000, 0, 0);
    while (poll(watched, 2, -1) > 0 && watched[0].revents != 0)
        echo(server);
    length = homa_recv(client, got, LONG, 0, NULL, 0, NULL);
    CHECK(length == 2000 || (errno == ETIMEDOUT && now_ms() - begun >= silence_ms));
    return length == 2000;
}

static void options_in_use(void)
{
    static const char *const maps[] = { "operator", "linux", "flat" };
    static const char *const profiles[] = { "default", "linux", "sigcomm18" };
    /* Calls have 20 seconds; the other profiles give a server up that is silent. */
    static const long silence_ms[] = { 20000, 110, 20 };
    int i, calls;
    for (i = 0; i < 3; i++) {
        struct homa_options options = HOMA_OPTIONS_INIT;
        struct sockaddr_in to;
        int client, server;
        options.driver = i == 0 ? "memory" : "udp";
        options.profile = profiles[i];
        options.priority_map = maps[i];
        options.deadline_ms = 20000;
        options.link_mbps = 1000;
        options.mtu = 1400;
        options.max_rpcs = 1000;
        options.send_memory = options.receive_memory = 10000000;
        server = serve(&to, &options);
        CHECK((client = homa_socket(NULL, 0, &options)) >= 0);
        for (calls = 1; !answered(client, server, to, silence_ms[i]); calls++)
            CHECK(i > 0 && calls < 100);
        CHECK(homa_close(client) == 0 && homa_close(server) == 0);
    }
}

/* The wildcard address means this host. */
static void wildcard(int client, int server, struct sockaddr_in to)
{
    struct sockaddr_in from;
    uint64_t id = 0;

    to.sin_addr.s_addr = htonl(INADDR_ANY);
    call(client, to, LONG, 0, 0);
    echo(server);
    CHECK(homa_recv(client, got, LONG, HOMA_RECV_RESPONSE, AT(from), &id) == LONG);
    CHECK(from.sin_addr.s_addr == htonl(INADDR_LOOPBACK) && from.sin_port == to.sin_port);
}

/* In a network with only loopback, a driver works and reaches no other host. */
static void alone_with(const char *driver)
{
    struct homa_options options = HOMA_OPTIONS_INIT;
    struct sockaddr_in to, from, elsewhere = loopback(4000);
    uint64_t id = 0, lost;
    int sock;

    options.driver = driver;
    options.flags = HOMA_PLAINTEXT;
    sock = serve(&to, &options);
    call(sock, to, LONG, 0, 0);
    echo(sock);
    CHECK(homa_recv(sock, got, LONG, HOMA_RECV_RESPONSE, AT(from), &id) == LONG);
    CHECK(memcmp(got, sent, LONG) == 0 && from.sin_port == to.sin_port);
    CHECK(homa_close(sock) == 0);

    CHECK((sock = homa_socket(NULL, 0, &options)) >= 0);
    elsewhere.sin_addr.s_addr = htonl(0x0a000001);
    lost = call(sock, elsewhere, 100, 0, 0);
    id = 0;
    FAILS(homa_recv(sock, got, LONG, 0, AT(from), &id), EHOSTUNREACH);
    CHECK(id == lost && from.sin_addr.s_addr == elsewhere.sin_addr.s_addr);
    CHECK(homa_close(sock) == 0);

    /* Another address of this host, which has no socket. */
    sock = serve(&to, &options);
    elsewhere.sin_addr.s_addr = htonl(0x7f000002);
    lost = call(sock, elsewhere, 100, 0, 0);
    id = 0;
    FAILS(homa_recv(sock, got, LONG, 0, AT(from), &id),
          strcmp(driver, "udp") == 0 ? ENOTCONN : EPROTONOSUPPORT);
    CHECK(id == lost);
    CHECK(homa_close(sock) == 0);
}

int main(int argc, char **argv)
{
    static char text[100];
    struct sockaddr_in to;
    int client, server, i, length;

    for (i = 0; i < LONG; i++)
        sent[i] = (char) (i * 11 + i / 253);
    if (argc > 1) {
        alone_with(argv[1]);
        return 0;
    }
    server = serve(&to, NULL);
    client = homa_socket(NULL, 0, NULL);
    CHECK(client >= 0);
    small_buffers(client, server, to);
    rest_of_a_request(client, server, to);
    wildcard(client, server, to);
    remaining(client, server, to);
    lent(client, server, to);
    descriptor(client, server, to);
    options_in_use();
    length = homa_metrics(client, NULL, 0);
    CHECK(length > 1000 && homa_metrics(client, text, sizeof text) == length);
    CHECK(strlen(text) == sizeof text - 1 && strncmp(text, "# HELP homa_", 12) == 0);
    CHECK(strcmp(homa_version(), "0.1.0") == 0);
    CHECK(homa_close(client) == 0 && homa_close(server) == 0);
    return 0;
}
