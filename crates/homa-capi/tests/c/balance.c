/* Calls a name that stands for three servers: one answers, one is silent, and one is gone. */
#include "check.h"
#include <pthread.h>
#include <sys/wait.h>

static int asked, held_arrived;

/* Answers requests with their bytes; the silent server keeps them. */
static void *server(void *argument)
{
    int sock = *(int *) argument, got;
    char request[100];
    struct sockaddr_in from;
    uint64_t id;
    while ((got = homa_recv(sock, request, sizeof request, HOMA_RECV_REQUEST, AT(from), &id)) >= 0)
        CHECK(homa_reply(sock, request, (size_t) got, AT(from), id) == 0);
    CHECK(errno == ESHUTDOWN || errno == EBADF);
    return NULL;
}

static void *silent(void *argument)
{
    int sock = *(int *) argument, got;
    char request[100];
    uint64_t id;
    while ((got = homa_recv(sock, request, sizeof request, HOMA_RECV_REQUEST, NULL, 0, &id)) >= 0)
        __atomic_add_fetch(memcmp(request, "held", 4) == 0 ? &held_arrived : &asked, 1,
                           __ATOMIC_SEQ_CST);
    CHECK(errno == ESHUTDOWN || errno == EBADF);
    return NULL;
}

struct held_call {
    struct homa_balancer *balancer;
    int sock;
};

/* A call that ends because its socket is closed, long before its deadline. */
static void *held(void *argument)
{
    struct held_call *call = argument;
    struct homa_send_options options = HOMA_SEND_OPTIONS_INIT;
    struct homa_message message;
    options.deadline_ms = UINT32_MAX;
    FAILS(homa_balancer_call(call->balancer, call->sock, "held", 4, &message, &options), ESHUTDOWN);
    return NULL;
}

static void write_addresses(const char *path, const struct sockaddr_in *at, int count)
{
    FILE *file = fopen(path, "w");
    int i;
    CHECK(file != NULL);
    for (i = 0; i < count; i++)
        fprintf(file, "127.0.0.1:%d # server %d\n", ntohs(at[i].sin_port), i);
    CHECK(fclose(file) == 0);
}

static void mistakes(int client, struct homa_balancer *balancer)
{
    struct homa_balance_options options = HOMA_BALANCE_OPTIONS_INIT;
    struct homa_message message;
    errno = 0;
    CHECK(homa_balancer_open(NULL, NULL) == NULL && errno == EFAULT);
    CHECK(homa_balancer_open("http://search:4000", NULL) == NULL && errno == EINVAL);
    CHECK(strstr(homa_strerror(EINVAL), "homa:///HOST:PORT") != NULL);
    options.hedge_percent = 101;
    CHECK(homa_balancer_open("homa:///localhost:1", &options) == NULL && errno == EINVAL);
    options.hedge_percent = 0;
    options.flags = 1u << 31;
    CHECK(homa_balancer_open("homa:///localhost:1", &options) == NULL && errno == EINVAL);
    FAILS(homa_balancer_call(NULL, client, "a", 1, &message, NULL), EFAULT);
    CHECK(message.data == NULL && message.owner == NULL);
    FAILS(homa_balancer_call(balancer, client, "a", 1, NULL, NULL), EFAULT);
    FAILS(homa_balancer_call(balancer, client, NULL, 1, &message, NULL), EFAULT);
    FAILS(homa_balancer_call(balancer, -1, "a", 1, &message, NULL), EBADF);
    homa_balancer_close(NULL);
}

/* A child has its own balancers, and may close those of its parent. */
static void in_child(struct homa_balancer *balancer)
{
    pid_t child = fork();
    int status = 0;
    if (child == 0) {
        int sock = homa_socket(NULL, 0, NULL);
        struct homa_message message;
        CHECK(sock >= 0);
        FAILS(homa_balancer_call(balancer, sock, "a", 1, &message, NULL), EBADF);
        homa_balancer_close(balancer);
        balancer = homa_balancer_open("homa+file:///nonexistent/homa", NULL);
        FAILS(homa_balancer_call(balancer, sock, "a", 1, &message, NULL), EHOSTUNREACH);
        /* A memory checker would report the parent's memory as leaks of this process. */
        execl("/bin/true", "true", (char *) NULL);
        _exit(1);
    }
    CHECK(waitpid(child, &status, 0) == child && status == 0);
}

int main(void)
{
    struct homa_balance_options options = HOMA_BALANCE_OPTIONS_INIT;
    struct homa_send_options call = HOMA_SEND_OPTIONS_INIT;
    struct homa_message message;
    struct homa_balancer *balancer;
    struct sockaddr_in at[3];
    struct held_call call_held;
    int socks[3], client, i;
    pthread_t threads[2], caller;
    char path[32], target[50];
    FILE *addresses = nameless_file(path, sizeof path);

    for (i = 0; i < 3; i++)
        socks[i] = serve(&at[i], NULL);
    CHECK(pthread_create(&threads[0], NULL, server, &socks[0]) == 0);
    CHECK(pthread_create(&threads[1], NULL, silent, &socks[1]) == 0);
    CHECK(homa_close(socks[2]) == 0);
    client = homa_socket(NULL, 0, NULL);
    CHECK(client >= 0);

    /* Nothing is known, because the file does not exist. */
    balancer = homa_balancer_open("homa+file:///nonexistent/homa", NULL);
    CHECK(balancer != NULL);
    FAILS(homa_balancer_call(balancer, client, "early", 5, &message, NULL), EHOSTUNREACH);
    homa_balancer_close(balancer);

    /* A call that waits for a server ends with its socket, as one that waits for a response. */
    options.flags = HOMA_BALANCE_WAIT;
    call_held.balancer = homa_balancer_open("homa+file:///nonexistent/homa", &options);
    CHECK((call_held.sock = homa_socket(NULL, 0, NULL)) >= 0 && call_held.balancer != NULL);
    CHECK(pthread_create(&caller, NULL, held, &call_held) == 0);
    usleep(20000);
    CHECK(homa_close(call_held.sock) == 0);
    CHECK(pthread_join(caller, NULL) == 0);
    homa_balancer_close(call_held.balancer);
    options.flags = 0;

    snprintf(target, sizeof target, "homa+file://%s", path);
    write_addresses(path, at, 3);
    options.hedge_percent = 100;
    options.hedge_after_us = 5000;
    balancer = homa_balancer_open(target, &options);
    CHECK(balancer != NULL);
    call.flags = HOMA_SEND_IDEMPOTENT;
    call.deadline_ms = 60000;
    /* Every call is answered, also after the silent server was asked. */
    for (i = 0; i < 20 || __atomic_load_n(&asked, __ATOMIC_SEQ_CST) == 0; i++) {
        CHECK(homa_balancer_call(balancer, client, "ping", 4, &message, &call) == 0);
        CHECK(message.length == 4 && memcmp(message.data, "ping", 4) == 0);
        homa_message_release(&message);
    }
    /* Responses of a balancer are not received from the socket. */
    CHECK(!readable(client, 0));
    mistakes(client, balancer);
    in_child(balancer);
    homa_balancer_close(balancer);

    /* A call that is not idempotent stays with its server until the deadline. */
    write_addresses(path, at + 1, 1);
    balancer = homa_balancer_open(target, &options);
    CHECK(balancer != NULL);
    call.flags = 0;
    call.deadline_ms = 50;
    FAILS(homa_balancer_call(balancer, client, "ping", 4, &message, &call), ETIMEDOUT);
    CHECK(message.data == NULL);

    /* Closing the socket ends its calls. */
    call_held.balancer = balancer;
    call_held.sock = client;
    CHECK(pthread_create(&caller, NULL, held, &call_held) == 0);
    while (__atomic_load_n(&held_arrived, __ATOMIC_SEQ_CST) == 0)
        usleep(1000);
    CHECK(homa_close(client) == 0);
    CHECK(pthread_join(caller, NULL) == 0);
    homa_balancer_close(balancer);

    CHECK(fclose(addresses) == 0);
    for (i = 0; i < 2; i++) {
        CHECK(homa_close(socks[i]) == 0);
        CHECK(pthread_join(threads[i], NULL) == 0);
    }
    return 0;
}
