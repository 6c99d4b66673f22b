/* A client and a server in the style of the slides of Homa/Linux (USENIX ATC 2021). The three
 * prototypes are repeated here. If those of libhoma differed, the compiler would refuse them.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <homa.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>

int homa_send(int sockfd, const void *request, size_t reqlen,
              const struct sockaddr *dest_addr, socklen_t addrlen,
              uint64_t *id);

int homa_reply(int sockfd, const void *response, size_t resplen,
               const struct sockaddr *dest_addr, socklen_t addrlen,
               uint64_t id);

int homa_recv(int sockfd, void *buf, size_t len, int flags,
              struct sockaddr *src_addr, socklen_t addrlen,
              uint64_t *id);

int main(void)
{
    struct sockaddr_in address, source;
    socklen_t length = sizeof address;
    char buffer[100];
    uint64_t call, id;
    int client, server, got;

    memset(&address, 0, sizeof address);
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    server = homa_socket((struct sockaddr *) &address, sizeof address, NULL);
    client = homa_socket(NULL, 0, NULL);
    if (client < 0 || server < 0
        || homa_getsockname(server, (struct sockaddr *) &address, &length) < 0) {
        fprintf(stderr, "cannot open a socket: %s\n", homa_strerror(errno));
        return 1;
    }

    /* There is no connection. Flags 0: any message. */
    if (homa_send(client, "ping", 4, (struct sockaddr *) &address, sizeof address, &call) < 0)
        return 1;
    got = homa_recv(server, buffer, sizeof buffer, 0, (struct sockaddr *) &source, sizeof source,
                    &id);
    if (got != 4 || memcmp(buffer, "ping", 4) != 0)
        return 1;
    if (homa_reply(server, "pong!", 5, (struct sockaddr *) &source, sizeof source, id) < 0)
        return 1;
    got = homa_recv(client, buffer, sizeof buffer, 0, (struct sockaddr *) &source, sizeof source,
                    &id);
    if (got != 5 || memcmp(buffer, "pong!", 5) != 0 || id != call
        || source.sin_port != address.sin_port)
        return 1;
    printf("pong\n");
    homa_close(client);
    homa_close(server);
    return 0;
}
