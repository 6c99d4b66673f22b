/* Keys that sockets share: the second client of a server sends its call beside the handshake, if it
 * may run twice. */
#include "check.h"
#include <sys/wait.h>

static char buffer[64];
static const char line[] = "homa-key-v1 AQIDBAUGBwgJCgsMDQ4PEBESExQVFhcYGRobHB0eHyA=\n";

/* A counter of a socket. */
static long counter(int sock, const char *name)
{
    static char text[1 << 17];
    char whole[64];
    const char *found;
    CHECK(homa_metrics(sock, text, sizeof text) < (int) sizeof text);
    snprintf(whole, sizeof whole, "\nhoma_driver_%s_total ", name);
    CHECK((found = strstr(text, whole)) != NULL);
    return atol(found + strlen(whole));
}

/* A client that binds another address than all before it: a server takes nothing early from the
 * address of a session, and the system may give a port twice. */
static int client_with(const struct homa_options *options)
{
    static uint32_t clients;
    struct sockaddr_in own = loopback(0);
    int client;
    own.sin_addr.s_addr = htonl(INADDR_LOOPBACK + ++clients);
    CHECK((client = homa_socket(AT(own), options)) >= 0);
    return client;
}

/* Begins a call. */
static uint64_t begin(int client, struct sockaddr_in to, uint32_t flags)
{
    struct homa_send_options options = HOMA_SEND_OPTIONS_INIT;
    struct iovec piece = { buffer, 7 };
    uint64_t call;
    options.flags = flags;
    memcpy(buffer, "request", 7);
    CHECK(homa_sendv(client, &piece, 1, AT(to), &call, &options) == 0);
    return call;
}

static void answer(int server)
{
    uint64_t id = 0;
    CHECK(readable(server, 60000) == 1);
    CHECK(homa_recv(server, buffer, sizeof buffer, HOMA_RECV_REQUEST, NULL, 0, &id) == 7);
    CHECK(homa_reply(server, "response", 8, NULL, 0, id) == 0);
}

static void end(int client, uint64_t call)
{
    CHECK(homa_recv(client, buffer, sizeof buffer, HOMA_RECV_RESPONSE, NULL, 0, &call) == 8);
    CHECK(memcmp(buffer, "response", 8) == 0);
}

/* A socket calls the server, which answers. */
static void call(int client, int server, struct sockaddr_in to, uint32_t flags)
{
    uint64_t call = begin(client, to, flags);
    answer(server);
    end(client, call);
}

/* A new client calls the server twice, so that it has a ticket for the next client at the end: the
 * server sends the ticket before it receives anything else of the session. */
static void meet(const struct homa_options *options, int server, struct sockaddr_in to,
                 uint32_t flags)
{
    int client = client_with(options);
    call(client, server, to, flags);
    call(client, server, to, 0);
    CHECK(homa_close(client) == 0);
}

/* Handshakes of a server that were completed with tickets, and datagrams that came early. */
static void counts(int server, long resumed, long early)
{
    CHECK(counter(server, "handshakes_resumed") == resumed);
    CHECK(counter(server, "early_datagrams_opened") == early);
    CHECK(counter(server, "early_datagrams_refused") == 0);
}

/* Of the clients that share keys, all but the first have a ticket. */
static void shared(const struct homa_options *client, const struct homa_options *of_server,
                   int allows)
{
    struct sockaddr_in to;
    int server = serve(&to, of_server);

    meet(client, server, to, HOMA_SEND_IDEMPOTENT);
    counts(server, 0, 0);
    meet(client, server, to, HOMA_SEND_IDEMPOTENT);
    counts(server, 1, allows);
    /* It may run only once. */
    meet(client, server, to, 0);
    counts(server, 2, allows);
    meet(client, server, to, HOMA_SEND_IDEMPOTENT);
    counts(server, 3, 2 * allows);
    CHECK(homa_close(server) == 0);
}

/* Clients that make one call each leave a ticket if they are drained. */
static void drained(const struct homa_options *options, const struct homa_options *of_server)
{
    struct sockaddr_in to;
    int server = serve(&to, of_server), client, early;

    for (early = 0; early < 4; early++) {
        client = client_with(options);
        call(client, server, to, HOMA_SEND_IDEMPOTENT);
        CHECK(homa_drain(client, 60000) == 0 && homa_close(client) == 0);
        counts(server, early, early);
    }
    CHECK(homa_close(server) == 0);
}

/* A child may use the keys of its parent, but has none of its tickets. */
static void forks(const struct homa_options *client, const struct homa_options *of_server)
{
    struct sockaddr_in to;
    int server = serve(&to, of_server), status;
    pid_t child;

    meet(client, server, to, HOMA_SEND_IDEMPOTENT);
    if ((child = fork()) == 0) {
        int own = homa_socket(NULL, 0, client);
        CHECK(own >= 0);
        end(own, begin(own, to, HOMA_SEND_IDEMPOTENT));
        /* A memory checker would report the parent's memory as leaks of this process. */
        execl("/bin/true", "true", (char *) NULL);
        _exit(1);
    }
    CHECK(child > 0);
    answer(server);
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    counts(server, 0, 0);
    /* The ticket is still here. */
    meet(client, server, to, HOMA_SEND_IDEMPOTENT);
    counts(server, 1, 1);
    CHECK(homa_close(server) == 0);
}

/* Sockets keep keys that were closed. */
static void closed(const char *path)
{
    struct homa_options options = HOMA_OPTIONS_INIT;
    struct homa_keys *keys = homa_keys_open(path, 0);
    struct sockaddr_in to;
    int server;

    CHECK(keys != NULL);
    options.keys = keys;
    server = serve(&to, &options);
    homa_keys_close(keys);
    homa_keys_close(NULL);
    options.keys = NULL;
    options.key_file = path;
    meet(&options, server, to, 0);
    counts(server, 0, 0);
    CHECK(homa_close(server) == 0);
}

/* homa_keys_open fails with this errno, and a text that contains this. */
static void refused(const char *path, uint32_t flags, int expected, const char *said)
{
    errno = 0;
    CHECK(homa_keys_open(path, flags) == NULL && errno == expected);
    CHECK(strstr(homa_strerror(errno), said) != NULL);
}

/* A file with these bytes, some times, is no key file. */
static void no_key_file(const char *bytes, int times, const char *said)
{
    char path[32];
    FILE *file = nameless_file(path, sizeof path);
    while (times-- > 0)
        CHECK(fputs(bytes, file) >= 0);
    CHECK(fflush(file) == 0);
    refused(path, 0, EINVAL, said);
    CHECK(fclose(file) == 0);
}

static void mistakes(const char *path, struct homa_options options)
{
    no_key_file("\xff\xfe", 1, "utf-8");
    no_key_file("# A comment\n", 2000, "longer than");
    refused(NULL, HOMA_EARLY_DATA, EFAULT, "key_file");
    refused(path, HOMA_PLAINTEXT, EINVAL, "give HOMA_EARLY_DATA or 0");
    refused("/nonexistent/homa.key", 0, ENOENT, "/nonexistent/homa.key");
    refused("/proc/self/stat", 0, EACCES, "/proc/self/stat");
    options.key_file = path;
    FAILS(homa_socket(NULL, 0, &options), EINVAL);
    CHECK(strstr(homa_strerror(EINVAL), "options->keys") != NULL);
    options.key_file = NULL;
    options.flags = HOMA_PLAINTEXT;
    FAILS(homa_socket(NULL, 0, &options), EINVAL);
    options.flags = HOMA_EARLY_DATA;
    FAILS(homa_socket(NULL, 0, &options), EINVAL);
    CHECK(strstr(homa_strerror(EINVAL), "flag of homa_keys_open") != NULL);
    options.flags = 0;
    options.server_name = "store.homa.test";
    FAILS(homa_socket(NULL, 0, &options), EINVAL);
    CHECK(strstr(homa_strerror(EINVAL), "cert_file") != NULL);
    options.server_name = NULL;
    options.padding = 256;
    CHECK(homa_close(homa_socket(NULL, 0, &options)) == 0);
    options.driver = "raw-ip";
    FAILS(homa_socket(NULL, 0, &options), EINVAL);
}

int main(void)
{
    struct homa_options early = HOMA_OPTIONS_INIT, other = HOMA_OPTIONS_INIT;
    struct homa_options never = HOMA_OPTIONS_INIT;
    struct homa_keys *keys[3];
    char path[32];
    FILE *file = nameless_file(path, sizeof path);
    int i;

    CHECK(fputs(line, file) >= 0 && fflush(file) == 0);
    early.deadline_ms = other.deadline_ms = never.deadline_ms = 60000;
    CHECK((early.keys = keys[0] = homa_keys_open(path, HOMA_EARLY_DATA)) != NULL);
    CHECK((other.keys = keys[1] = homa_keys_open(path, HOMA_EARLY_DATA)) != NULL);
    CHECK((never.keys = keys[2] = homa_keys_open(path, 0)) != NULL);
    mistakes(path, early);
    shared(&early, &other, 1);
    /* Clients and servers may have the same keys. */
    shared(&early, &early, 1);
    /* Both ends have to allow it. */
    shared(&early, &never, 0);
    shared(&never, &early, 0);
    drained(&early, &other);
    forks(&early, &other);
    closed(path);
    for (i = 0; i < 3; i++)
        homa_keys_close(keys[i]);
    CHECK(fclose(file) == 0);
    return 0;
}
