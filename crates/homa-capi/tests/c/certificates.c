/* Sockets with certificates: the names that they see, and a policy that refuses one of them. The
 * argument is a folder with the files of an authority and of two of its hosts. */
#include "check.h"

#define NAME "spiffe://homa.test/"

static char buffer[100];

static const char *in(const char *folder, const char *file)
{
    char *path = malloc(strlen(folder) + strlen(file) + 2);
    CHECK(path != NULL);
    sprintf(path, "%s/%s", folder, file);
    return path;
}

static int readers(const char *identity, void *user)
{
    CHECK(strncmp(identity, NAME, strlen(NAME)) == 0);
    return strcmp(identity, user) == 0;
}

static void call(const struct homa_options *options, struct sockaddr_in to, int server, int admitted)
{
    char identity[30];
    uint64_t call, id = 0;
    int client;

    CHECK((client = homa_socket(NULL, 0, options)) >= 0);
    CHECK(homa_send(client, "secret", 6, AT(to), &call) == 0);
    if (admitted) {
        CHECK(readable(server, 60000) == 1);
        CHECK(homa_recv(server, buffer, sizeof buffer, HOMA_RECV_REQUEST, NULL, 0, &id) == 6);
        CHECK(homa_peer_identity(server, id, identity, sizeof identity) > 0);
        CHECK(strcmp(identity, NAME "reader") == 0);
        CHECK(homa_reply(server, buffer, 6, NULL, 0, id) == 0);
        CHECK(homa_recv(client, buffer, sizeof buffer, 0, NULL, 0, &call) == 6);
    } else {
        FAILS(homa_recv(client, buffer, sizeof buffer, 0, NULL, 0, &call), EKEYREJECTED);
        FAILS(homa_recv(server, buffer, 1, HOMA_RECV_NONBLOCKING, NULL, 0, NULL), EAGAIN);
    }
    CHECK(homa_close(client) == 0);
}

int main(int argc, char **argv)
{
    struct homa_options reader = HOMA_OPTIONS_INIT, writer = HOMA_OPTIONS_INIT, store, wrong;
    struct sockaddr_in to;
    const char *paths[5];
    int server, i;

    CHECK(argc == 2);
    reader.deadline_ms = writer.deadline_ms = 60000;
    reader.cert_file = paths[0] = in(argv[1], "reader.crt");
    reader.cert_key_file = paths[1] = in(argv[1], "reader.key");
    writer.cert_file = paths[2] = in(argv[1], "writer.crt");
    writer.cert_key_file = paths[3] = in(argv[1], "writer.key");
    FAILS(homa_socket(NULL, 0, &reader), EINVAL);
    CHECK(strstr(homa_strerror(EINVAL), "ca_file") != NULL);
    writer.ca_file = reader.ca_file = paths[4] = in(argv[1], "ca.crt");
    wrong = reader;
    wrong.ca_file = "/nonexistent/ca.crt";
    FAILS(homa_socket(NULL, 0, &wrong), ENOENT);
    wrong.ca_file = reader.ca_file;
    wrong.key_file = "cluster.key";
    FAILS(homa_socket(NULL, 0, &wrong), EINVAL);
    store = writer;
    store.admit = readers;
    store.admit_user = NAME "reader";
    server = serve(&to, &store);
    call(&reader, to, server, 1);
    call(&writer, to, server, 0);
    wrong = reader;
    wrong.server_name = "store.homa.test";
    call(&wrong, to, server, 0);
    CHECK(homa_close(server) == 0);
    /* A client has a policy about servers. */
    store.admit = NULL;
    server = serve(&to, &store);
    wrong = reader;
    wrong.admit = readers;
    wrong.admit_user = NAME "writer";
    call(&wrong, to, server, 1);
    wrong.admit_user = NAME "reader";
    call(&wrong, to, server, 0);
    CHECK(homa_close(server) == 0);
    for (i = 0; i < 5; i++)
        free((void *) paths[i]);
    return 0;
}
