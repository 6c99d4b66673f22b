/* Shared by the test programs: checks that print their line if they fail, and loopback sockets. */
#include <arpa/inet.h>
#include <errno.h>
#include <homa.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CHECK(condition)                                                                     \
    do {                                                                                     \
        if (!(condition)) {                                                                  \
            fprintf(stderr, "%s:%d: %s (errno %d: %s)\n", __FILE__, __LINE__, #condition, errno, \
                    homa_strerror(errno));                                                   \
            exit(1);                                                                         \
        }                                                                                    \
    } while (0)

/* The call fails with this errno, which has a text. */
#define FAILS(call, expected)                                  \
    do {                                                       \
        errno = 0;                                             \
        CHECK((call) == -1 && errno == (expected));            \
        CHECK(strlen(homa_strerror(errno)) > 0);               \
    } while (0)

#define AT(address) ((struct sockaddr *) &(address)), sizeof(address)

static struct sockaddr_in loopback(int port)
{
    struct sockaddr_in address;
    memset(&address, 0, sizeof address);
    address.sin_family = AF_INET;
    address.sin_port = htons((uint16_t) port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return address;
}

/* Opens a server at any port, and returns its address. */
static int serve(struct sockaddr_in *address, const struct homa_options *options)
{
    socklen_t length = sizeof *address;
    int sock;
    *address = loopback(0);
    sock = homa_socket((struct sockaddr *) address, sizeof *address, options);
    CHECK(sock >= 0);
    CHECK(homa_getsockname(sock, (struct sockaddr *) address, &length) == 0);
    return sock;
}

/* Opens a file that no folder has, so that a test that fails leaves none, and writes its path. */
static inline FILE *nameless_file(char *path, size_t length)
{
    FILE *file = tmpfile();
    CHECK(file != NULL);
    snprintf(path, length, "/proc/self/fd/%d", fileno(file));
    return file;
}

static int readable(int sock, int timeout_ms)
{
    struct pollfd watched = { sock, POLLIN, 0 };
    return poll(&watched, 1, timeout_ms);
}
