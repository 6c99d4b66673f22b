/* Every failure sets the errno of the manual pages, and changes nothing else. */
#include "check.h"
#include <sys/eventfd.h>
#include <sys/wait.h>

static char buffer[64];

/* The call ends with this errno, and homa_recv returns its id. */
static void ends(int sock, uint64_t call, int expected)
{
    struct sockaddr_in from;
    uint64_t id = 0;
    FAILS(homa_recv(sock, buffer, sizeof buffer, 0, AT(from), &id), expected);
    CHECK(id == call);
}

static void misuse(int sock, struct sockaddr_in to)
{
    struct homa_options options = HOMA_OPTIONS_INIT;
    struct sockaddr_in taken = to;
    struct homa_send_options private = HOMA_SEND_OPTIONS_INIT;
    struct iovec piece = { buffer, 1 };
    uint64_t id = 7;

    FAILS(homa_send(sock, NULL, 1, AT(to), &id), EFAULT);
    FAILS(homa_send(sock, buffer, 1, NULL, 0, &id), EFAULT);
    FAILS(homa_send(sock, buffer, 1, (struct sockaddr *) &to, 4, &id), EINVAL);
    FAILS(homa_sendv(sock, &piece, -1, AT(to), &id, NULL), EINVAL);
    FAILS(homa_sendv(sock, NULL, 1, AT(to), &id, NULL), EFAULT);
    private.flags = HOMA_SEND_PRIVATE;
    FAILS(homa_sendv(sock, &piece, 1, AT(to), NULL, &private), EFAULT);
    to.sin_port = 0;
    FAILS(homa_send(sock, buffer, 1, AT(to), &id), EINVAL);
    to.sin_family = AF_UNIX;
    FAILS(homa_send(sock, buffer, 1, AT(to), &id), EAFNOSUPPORT);
    FAILS(homa_recv(sock, buffer, sizeof buffer, 0x4000, NULL, 0, NULL), EINVAL);
    FAILS(homa_recv(sock, NULL, 1, HOMA_RECV_NONBLOCKING, NULL, 0, NULL), EFAULT);
    FAILS(homa_recv(sock, buffer, 1, HOMA_RECV_NONBLOCKING, NULL, 0, &id), EAGAIN);
    CHECK(id == 0);
    FAILS(homa_recv(sock, buffer, 1, MSG_DONTWAIT, NULL, 0, NULL), EAGAIN);
    id = 123456;
    FAILS(homa_recv(sock, buffer, 1, HOMA_RECV_RESPONSE, NULL, 0, &id), EINVAL);
    FAILS(homa_reply(sock, buffer, 1, NULL, 0, 123457), EINVAL);
    FAILS(homa_reply(sock, buffer, 1, NULL, 0, 0), EINVAL);
    FAILS(homa_abort(sock, 123456, 0), EINVAL);
    FAILS(homa_abort(sock, 0, -5), EINVAL);
    FAILS(homa_socket(AT(taken), NULL), EADDRINUSE);
    options.driver = "carrier-pigeon";
    FAILS(homa_socket(NULL, 0, &options), EINVAL);
    CHECK(strstr(homa_strerror(EINVAL), "carrier-pigeon") != NULL);
    CHECK(strcmp(homa_strerror(ENOENT), homa_strerror(EINVAL)) != 0);
    options.driver = NULL;
    options.size = 1;
    FAILS(homa_socket(NULL, 0, &options), EINVAL);
}

/* Lengths that exceed any memory. Other errors are reported first, and nothing is copied. */
static void lengths(int sock, struct sockaddr_in to)
{
    static const size_t lengths[] = { 100001, (size_t) 1 << 40, SIZE_MAX / 2, SIZE_MAX };
    struct sockaddr_in nowhere = loopback(0);
    uint64_t id;
    size_t i;

    for (i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        struct iovec pieces[3] = { { buffer, 1 }, { buffer, 0 }, { buffer, 1 } };
        pieces[1].iov_len = lengths[i];
        FAILS(homa_send(sock, buffer, lengths[i], AT(to), &id), EMSGSIZE);
        FAILS(homa_sendv(sock, pieces, 3, AT(to), &id, NULL), EMSGSIZE);
        FAILS(homa_reply(sock, buffer, lengths[i], AT(to), 123457), EMSGSIZE);
        FAILS(homa_replyv(sock, pieces, 3, AT(to), 123457), EMSGSIZE);
        FAILS(homa_send(-1, buffer, lengths[i], AT(to), &id), EBADF);
        FAILS(homa_reply(-1, buffer, lengths[i], AT(to), 123457), EBADF);
        FAILS(homa_send(sock, buffer, lengths[i], AT(nowhere), &id), EINVAL);
    }
}

/* After close(2) by mistake, homa_close does not close a new file with the same number. */
static void foreign_descriptors(void)
{
    struct sockaddr_in to;
    int sock = serve(&to, NULL), pair[2], again;
    CHECK(close(sock) == 0);
    CHECK(pipe(pair) == 0 && pair[0] == sock);
    FAILS(homa_close(sock), EBADF);
    CHECK(write(pair[1], "x", 1) == 1 && read(pair[0], buffer, 1) == 1);
    CHECK(close(pair[0]) == 0 && close(pair[1]) == 0);
    /* The socket is still closed. */
    CHECK((again = homa_socket(AT(to), NULL)) >= 0);
    CHECK(homa_close(again) == 0);
    /* The same kind of file, but another one. */
    sock = serve(&to, NULL);
    CHECK(close(sock) == 0);
    CHECK((again = eventfd(0, 0)) == sock);
    FAILS(homa_close(sock), EBADF);
    CHECK(close(again) == 0);
}

/* Options of a later libhoma are accepted if the added members are zero. */
static void growth(void)
{
    struct { struct homa_options known; uint64_t later; } options;
    int sock;
    memset(&options, 0, sizeof options);
    options.known.size = sizeof options;
    CHECK((sock = homa_socket(NULL, 0, &options.known)) >= 0);
    CHECK(homa_close(sock) == 0);
    options.later = 1;
    FAILS(homa_socket(NULL, 0, &options.known), E2BIG);
    /* Options of an earlier libhoma, which end before the limits. */
    options.known.size = offsetof(struct homa_options, deadline_ms);
    CHECK((sock = homa_socket(NULL, 0, &options.known)) >= 0);
    CHECK(homa_close(sock) == 0);
}

static int anybody(const char *identity, void *user)
{
    (void) identity;
    return user == NULL;
}

/* A policy about verified peers is refused if no peer is verified. */
static void policy(void)
{
    struct homa_options options = HOMA_OPTIONS_INIT;
    options.admit = anybody;
    FAILS(homa_socket(NULL, 0, &options), EINVAL);
    CHECK(strstr(homa_strerror(EINVAL), "admit") != NULL);
    options.flags = HOMA_PLAINTEXT;
    FAILS(homa_socket(NULL, 0, &options), EINVAL);
}

/* Bytes of UDP datagrams that a socket has sent. */
static long sent_bytes(int sock)
{
    static const char name[] = "\nhoma_driver_bytes_sent_total ";
    static char text[1 << 17];
    const char *found;
    CHECK(homa_metrics(sock, text, sizeof text) < (int) sizeof text);
    CHECK((found = strstr(text, name)) != NULL);
    return atol(found + strlen(name));
}

/* Padding that cannot be, or that would have no effect. */
static void padding(struct homa_options options)
{
    int sock;
    options.padding = 65536;
    FAILS(homa_socket(NULL, 0, &options), EINVAL);
    CHECK(strstr(homa_strerror(EINVAL), "HOMA_PADDING_FULL") != NULL);
    options.padding = 256;
    CHECK((sock = homa_socket(NULL, 0, &options)) >= 0);
    CHECK(homa_close(sock) == 0);
    options.key_file = NULL;
    FAILS(homa_socket(NULL, 0, &options), EINVAL);
    CHECK(strstr(homa_strerror(EINVAL), "padding") != NULL);
}

/* A server that does not answer gets as many calls as the limit says, and others get theirs. */
static void one_call_each(void)
{
    struct homa_options options = HOMA_OPTIONS_INIT;
    struct sockaddr_in to, other;
    uint64_t call;
    int client, servers[2] = { serve(&to, NULL), serve(&other, NULL) };

    options.max_calls_per_server = 1;
    CHECK((client = homa_socket(NULL, 0, &options)) >= 0);
    CHECK(homa_send(client, "first", 5, AT(to), &call) == 0);
    FAILS(homa_send(client, "second", 6, AT(to), &call), EAGAIN);
    CHECK(strstr(homa_strerror(EAGAIN), "max_calls_per_server") != NULL);
    CHECK(homa_send(client, "third", 5, AT(other), &call) == 0);
    CHECK(homa_close(client) == 0);
    CHECK(homa_close(servers[0]) == 0 && homa_close(servers[1]) == 0);
}

/* With the same key a call is answered; with no key it is refused, and not executed. */
static void keys(int plain)
{
    static const char line[] = "homa-key-v1 AQIDBAUGBwgJCgsMDQ4PEBESExQVFhcYGRobHB0eHyA=\n";
    char path[32], identity[20];
    FILE *file = nameless_file(path, sizeof path);
    struct homa_options options = HOMA_OPTIONS_INIT;
    struct sockaddr_in to, from;
    uint64_t call, id = 0;
    long before;
    int client, server, i;

    options.key_file = "/nonexistent/homa.key";
    FAILS(homa_socket(NULL, 0, &options), ENOENT);
    CHECK(strstr(homa_strerror(ENOENT), "/nonexistent/homa.key") != NULL);
    options.key_file = path;
    FAILS(homa_socket(NULL, 0, &options), EINVAL);
    CHECK(fputs(line, file) >= 0 && fflush(file) == 0);
    padding(options);
    options.deadline_ms = 60000;
    server = serve(&to, &options);
    options.padding = HOMA_PADDING_FULL;
    CHECK((client = homa_socket(NULL, 0, &options)) >= 0);
    CHECK(fclose(file) == 0);
    CHECK(homa_send(client, "secret", 6, AT(to), &call) == 0);
    CHECK(homa_recv(server, buffer, sizeof buffer, HOMA_RECV_REQUEST, AT(from), &id) == 6);
    CHECK(homa_peer_identity(server, id, identity, sizeof identity) == 7);
    CHECK(strcmp(identity, "cluster") == 0);
    CHECK(homa_peer_identity(server, id, NULL, 0) == 7);
    FAILS(homa_peer_identity(server, id, NULL, 1), EFAULT);
    CHECK(homa_reply(server, buffer, 6, AT(from), id) == 0);
    FAILS(homa_peer_identity(server, id, identity, sizeof identity), EINVAL);
    id = call;
    CHECK(homa_recv(client, buffer, sizeof buffer, HOMA_RECV_RESPONSE, AT(from), &id) == 6);
    CHECK(memcmp(buffer, "secret", 6) == 0);
    before = sent_bytes(client);
    for (i = 0; i < 10; i++) {
        CHECK(homa_send(client, "secret", 6, AT(to), &call) == 0);
        CHECK(homa_recv(server, buffer, sizeof buffer, HOMA_RECV_REQUEST, AT(from), &id) == 6);
        CHECK(homa_reply(server, buffer, 6, AT(from), id) == 0);
        CHECK(homa_recv(client, buffer, sizeof buffer, HOMA_RECV_RESPONSE, NULL, 0, &call) == 6);
    }
    /* Each request is as long as the path permits. */
    CHECK(sent_bytes(client) - before > 10 * 1400);
    CHECK(homa_send(plain, "plain", 5, AT(to), &call) == 0);
    ends(plain, call, EKEYREJECTED);
    FAILS(homa_recv(server, buffer, 1, HOMA_RECV_NONBLOCKING, NULL, 0, NULL), EAGAIN);
    CHECK(homa_close(client) == 0 && homa_close(server) == 0);
}

/* A UDP socket that was bound before has a server, or its fault has a name. */
static void given(int client)
{
    struct homa_options raw_ip = HOMA_OPTIONS_INIT;
    struct sockaddr_in to = loopback(0), from;
    socklen_t length = sizeof to;
    uint64_t call, id = 0;
    int sock, fd = socket(AF_INET, SOCK_DGRAM, 0);

    FAILS(homa_socket_from_fd(-1, NULL), ENOTSOCK);
    FAILS(homa_socket_from_fd(fd, NULL), EINVAL);
    CHECK(strstr(homa_strerror(EINVAL), "bind it first") != NULL);
    CHECK(bind(fd, AT(to)) == 0 && getsockname(fd, (struct sockaddr *) &to, &length) == 0);
    raw_ip.driver = "raw-ip";
    FAILS(homa_socket_from_fd(fd, &raw_ip), EINVAL);
    CHECK(homa_send(client, "early", 5, AT(to), &call) == 0);
    CHECK(readable(fd, 5000) == 1);
    CHECK((sock = homa_socket_from_fd(fd, NULL)) >= 0);
    CHECK(close(fd) == 0);
    CHECK(homa_recv(sock, buffer, sizeof buffer, HOMA_RECV_REQUEST, AT(from), &id) == 5);
    CHECK(homa_reply(sock, buffer, 5, AT(from), id) == 0);
    CHECK(homa_recv(client, buffer, sizeof buffer, HOMA_RECV_RESPONSE, AT(from), &call) == 5);
    CHECK(homa_drain(sock, 5000) == 0 && homa_close(sock) == 0);
}

/* Without a key, a socket stays on this host, unless plaintext is chosen. */
static void plaintext(void)
{
    struct homa_options options = HOMA_OPTIONS_INIT;
    struct sockaddr_in any = loopback(0), other = loopback(9);
    uint64_t id;
    int sock;

    any.sin_addr.s_addr = htonl(INADDR_ANY);
    other.sin_addr.s_addr = htonl(0xc0000201);
    FAILS(homa_socket(AT(any), NULL), ENOKEY);
    CHECK(strstr(homa_strerror(ENOKEY), "homa key new") != NULL);
    CHECK((sock = homa_socket(NULL, 0, NULL)) >= 0);
    FAILS(homa_send(sock, "secret", 6, AT(other), &id), ENOKEY);
    CHECK(homa_close(sock) == 0);
    options.flags = HOMA_PLAINTEXT;
    CHECK((sock = homa_socket(AT(any), &options)) >= 0);
    CHECK(homa_send(sock, "chosen", 6, AT(other), &id) == 0);
    CHECK(homa_close(sock) == 0);
    options.key_file = "cluster.key";
    FAILS(homa_socket(NULL, 0, &options), EINVAL);
}

static void calls_that_fail(int client, struct sockaddr_in to)
{
    struct homa_send_options options = HOMA_SEND_OPTIONS_INIT;
    struct iovec piece = { buffer, 1 };
    struct sockaddr_in nobody;
    uint64_t call, silent;

    /* A port that was free just now. */
    CHECK(homa_close(serve(&nobody, NULL)) == 0);
    CHECK(homa_send(client, buffer, 1, AT(nobody), &call) == 0);
    ends(client, call, ENOTCONN);

    options.deadline_ms = 50;
    CHECK(homa_sendv(client, &piece, 1, AT(to), &call, &options) == 0);
    ends(client, call, ETIMEDOUT);

    CHECK(homa_send(client, buffer, 1, AT(to), &silent) == 0);
    CHECK(homa_send(client, buffer, 1, AT(to), &call) == 0);
    CHECK(homa_abort(client, silent, 0) == 0);
    CHECK(homa_abort(client, 0, ECANCELED) == 0);
    ends(client, call, ECANCELED);
    FAILS(homa_abort(client, call, 0), EINVAL);
    FAILS(homa_recv(client, buffer, 1, HOMA_RECV_NONBLOCKING, NULL, 0, NULL), EAGAIN);
}

/* Receives the request that begins with `first`. Answers requests of clients that gave up. */
static uint64_t request_with(int server, char first, struct sockaddr_in *from)
{
    for (;;) {
        uint64_t id;
        CHECK(homa_recv(server, buffer, sizeof buffer, 0, (struct sockaddr *) from, sizeof *from,
                        &id) > 0);
        if (buffer[0] == first)
            return id;
        CHECK(homa_reply(server, buffer, 1, NULL, 0, id) == 0);
    }
}

static void replies(int client, int server, struct sockaddr_in to)
{
    struct sockaddr_in from, other = loopback(9);
    uint64_t call, request;
    static char much[100001];

    CHECK(homa_send(client, "R", 1, AT(to), &call) == 0);
    request = request_with(server, 'R', &from);
    FAILS(homa_reply(server, buffer, 1, AT(other), request), EINVAL);
    FAILS(homa_reply(server, much, sizeof much, AT(from), request), EMSGSIZE);
    CHECK(homa_reply(server, buffer, 1, AT(from), request) == 0);
    FAILS(homa_reply(server, buffer, 1, AT(from), request), EINVAL);
    CHECK(homa_recv(client, buffer, 1, HOMA_RECV_RESPONSE, NULL, 0, &call) == 1);
}

/* A child process has none of its parent's sockets. */
static void forks(int server, struct sockaddr_in to)
{
    struct sockaddr_in from;
    pid_t child = fork();
    int status;
    if (child == 0) {
        uint64_t call = 0;
        int own;
        FAILS(homa_send(server, buffer, 1, AT(to), NULL), EBADF);
        CHECK((own = homa_socket(NULL, 0, NULL)) >= 0);
        CHECK(homa_send(own, "child", 5, AT(to), &call) == 0);
        CHECK(homa_recv(own, buffer, sizeof buffer, 0, NULL, 0, &call) == 6);
        /* A memory checker would report the parent's memory as leaks of this process. */
        execl("/bin/true", "true", (char *) NULL);
        _exit(1);
    }
    CHECK(child > 0);
    CHECK(homa_reply(server, "parent", 6, NULL, 0, request_with(server, 'c', &from)) == 0);
    CHECK(waitpid(child, &status, 0) == child && status == 0);
}

int main(void)
{
    struct homa_options options = HOMA_OPTIONS_INIT;
    struct sockaddr_in to;
    int client, server;

    options.max_message = 100000;
    server = serve(&to, &options);
    CHECK((client = homa_socket(NULL, 0, NULL)) >= 0);
    misuse(server, to);
    lengths(server, to);
    foreign_descriptors();
    growth();
    keys(client);
    policy();
    given(client);
    plaintext();
    one_call_each();
    calls_that_fail(client, to);
    replies(client, server, to);
    forks(server, to);
    CHECK(homa_drain(client, 5000) == 0);
    CHECK(readable(client, 0) == 1);
    FAILS(homa_send(client, buffer, 1, AT(to), NULL), ESHUTDOWN);
    FAILS(homa_recv(client, buffer, 1, 0, NULL, 0, NULL), ESHUTDOWN);
    CHECK(homa_close(client) == 0);
    FAILS(homa_close(client), EBADF);
    FAILS(homa_send(client, buffer, 1, AT(to), NULL), EBADF);
    FAILS(homa_recv(0, buffer, 1, 0, NULL, 0, NULL), EBADF);
    FAILS(homa_metrics(-1, NULL, 0), EBADF);
    CHECK(homa_close(server) == 0);
    return 0;
}
