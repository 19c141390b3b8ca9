/* Slow and lossy links between machines made of network namespaces, for kernels without netem: a switch
 * in user space. It passes Ethernet frames between network interfaces, of which each leads to one
 * machine; on their way to a machine frames wait, take their time at a rate, and some are lost, the
 * same ones for the same seed and order of frames.
 *
 *     prog_link_emulator IFACE...            until its standard input ends; lines there:
 *         link PORT DELAY_MS LOSS_PERCENT MBIT   of one interface, counted from 0 (MBIT 0: no limit)
 *     prog_link_emulator --plain IFACE       in a machine's namespace: its interface sends whole
 *                                            frames with checksums, as a wire has them
 *
 * At the end one line says how many frames went and were lost. A frame longer than a wire's is an error:
 * the kernel would deliver many packets' worth at the price of one. Expected: some thousand frames a
 * second between two to four machines. */
#include <arpa/inet.h>
#include <errno.h>
#include <linux/ethtool.h>
#include <linux/if_packet.h>
#include <linux/sockios.h>
#include <net/ethernet.h>
#include <net/if.h>
#include <poll.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { PORTS = 8, FRAME_MAX = 1514, QUEUE = 8192, AT_ONCE = 64, BUFFER = 8 << 20 };

typedef struct frame {
    int64_t due_ns;
    int nbytes;
    uint8_t bytes[FRAME_MAX];
} frame;

typedef struct port {
    int fd;
    uint8_t mac[6]; /* of the machine behind it, once it has sent something */
    bool known;
    int64_t delay_ns;
    double loss, bytes_per_ns; /* 0 = no limit */
    int64_t free_ns;           /* when the wire has carried what is in the queue */
    frame *queue;              /* (QUEUE) a ring, in the order of due_ns */
    unsigned first, count;
    long went, lost;
} port;

static port ports[PORTS];
static int nports;
static uint64_t random_state = 0x9E3779B97F4A7C15u;

static void die(const char *what)
{
    fprintf(stderr, "prog_link_emulator: %s: %s\n", what, strerror(errno));
    exit(1);
}

static int64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * INT64_C(1000000000) + t.tv_nsec;
}

/* xorshift64* (Vigna, ACM TOMS 2016), in [0, 1). */
static double random_number(void)
{
    random_state ^= random_state >> 12;
    random_state ^= random_state << 25;
    random_state ^= random_state >> 27;
    return (double)((random_state * 0x2545F4914F6CDD1Du) >> 11) * 0x1p-53;
}

static void make_plain(const char *name)
{
    static const struct {
        uint32_t command;
        const char *name;
    } list[] = { { ETHTOOL_STSO, "tso" },
                 { ETHTOOL_SGSO, "gso" },
                 { ETHTOOL_SGRO, "gro" },
                 { ETHTOOL_STXCSUM, "tx checksums" } };
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0) die("socket");
    for (size_t i = 0; i < sizeof list / sizeof list[0]; i++) {
        struct ethtool_value value = { .cmd = list[i].command, .data = 0 };
        struct ifreq request = { .ifr_data = (void *)&value };
        snprintf(request.ifr_name, sizeof request.ifr_name, "%s", name);
        if (ioctl(fd, SIOCETHTOOL, &request) != 0) die(list[i].name);
    }
    close(fd);
}

static void open_port(port *p, const char *name)
{
    int one = 1, room = BUFFER, index = (int)if_nametoindex(name);
    struct sockaddr_ll address = { .sll_family = AF_PACKET,
                                   .sll_protocol = htons(ETH_P_ALL),
                                   .sll_ifindex = index };
    struct packet_mreq all = { .mr_ifindex = index, .mr_type = PACKET_MR_PROMISC };
    if (index == 0) die(name);
    p->fd = socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (p->fd < 0) die("packet socket");
    if (setsockopt(p->fd, SOL_PACKET, PACKET_IGNORE_OUTGOING, &one, sizeof one) != 0 ||
        setsockopt(p->fd, SOL_PACKET, PACKET_ADD_MEMBERSHIP, &all, sizeof all) != 0 ||
        setsockopt(p->fd, SOL_SOCKET, SO_RCVBUFFORCE, &room, sizeof room) != 0 ||
        setsockopt(p->fd, SOL_SOCKET, SO_SNDBUFFORCE, &room, sizeof room) != 0 ||
        bind(p->fd, (struct sockaddr *)&address, sizeof address) != 0)
        die(name);
    p->queue = calloc(QUEUE, sizeof *p->queue);
    if (!p->queue) die("memory");
}

/* Towards a machine: lost, or in the queue until it is due. */
static void send_later(port *p, const uint8_t *bytes, int nbytes, int64_t now)
{
    if (p->count == QUEUE || random_number() < p->loss) {
        p->lost++;
        return;
    }
    frame *f = &p->queue[(p->first + p->count++) % QUEUE];
    int64_t begins = p->free_ns > now ? p->free_ns : now;
    p->free_ns = begins + (p->bytes_per_ns > 0 ? (int64_t)(nbytes / p->bytes_per_ns) : 0);
    f->due_ns = p->free_ns + p->delay_ns;
    f->nbytes = nbytes;
    memcpy(f->bytes, bytes, (size_t)nbytes);
}

static void pass_on(port *from, const uint8_t *bytes, int nbytes)
{
    int64_t now = now_ns();
    memcpy(from->mac, bytes + 6, 6);
    from->known = true;
    for (int i = 0; i < nports; i++) /* where the address is known, to it alone */
        if (&ports[i] != from && ports[i].known && memcmp(ports[i].mac, bytes, 6) == 0) {
            send_later(&ports[i], bytes, nbytes, now);
            return;
        }
    for (int i = 0; i < nports; i++)
        if (&ports[i] != from) send_later(&ports[i], bytes, nbytes, now);
}

static void take(port *p)
{
    uint8_t bytes[65536];
    for (int i = 0; i < AT_ONCE; i++) {
        ssize_t n = recv(p->fd, bytes, sizeof bytes, 0);
        if (n < 0) return; /* nothing more, or the interface is down */
        if (n < ETH_HLEN) continue;
        if (n > FRAME_MAX) {
            errno = EMSGSIZE;
            die("a frame longer than a wire's; was --plain forgotten");
        }
        pass_on(p, bytes, (int)n);
    }
}

/* What is due goes out. Returns when the next is. */
static int64_t give(port *p, int64_t now)
{
    while (p->count > 0) {
        frame *f = &p->queue[p->first];
        if (f->due_ns > now) return f->due_ns;
        if (send(p->fd, f->bytes, (size_t)f->nbytes, 0) == f->nbytes)
            p->went++;
        else
            p->lost++; /* the interface is down */
        p->first = (p->first + 1) % QUEUE;
        p->count--;
    }
    return INT64_MAX;
}

static void obey(const char *line)
{
    int i;
    double delay_ms, loss, mbit;
    if (sscanf(line, "link %d %lf %lf %lf", &i, &delay_ms, &loss, &mbit) != 4 || i < 0 ||
        i >= nports || delay_ms < 0 || loss < 0 || loss > 100 || mbit < 0) {
        errno = EINVAL;
        die(line);
    }
    ports[i].delay_ns = (int64_t)(delay_ms * 1e6);
    ports[i].loss = loss / 100;
    ports[i].bytes_per_ns = mbit / 8e3;
}

/* False at the end of the input. */
static bool read_orders(void)
{
    static char line[256];
    static size_t used;
    ssize_t n = read(STDIN_FILENO, line + used, sizeof line - 1 - used);
    if (n <= 0) return false;
    used += (size_t)n;
    line[used] = '\0';
    for (char *end; (end = strchr(line, '\n')) != NULL;) {
        *end = '\0';
        obey(line);
        used -= (size_t)(end + 1 - line);
        memmove(line, end + 1, used + 1);
    }
    return true;
}

static void run(void)
{
    struct pollfd fds[PORTS + 1] = { { .fd = STDIN_FILENO, .events = POLLIN } };
    for (int i = 0; i < nports; i++)
        fds[i + 1] = (struct pollfd) { .fd = ports[i].fd, .events = POLLIN };
    for (;;) {
        int64_t now = now_ns(), next = INT64_MAX;
        for (int i = 0; i < nports; i++) {
            int64_t due = give(&ports[i], now);
            if (due < next) next = due;
        }
        int64_t left = next - now;
        struct timespec limit = { .tv_sec = left / 1000000000, .tv_nsec = left % 1000000000 };
        if (ppoll(fds, (nfds_t)nports + 1, next == INT64_MAX ? NULL : &limit, NULL) < 0 &&
            errno != EINTR)
            die("poll");
        if (fds[0].revents && !read_orders()) return;
        for (int i = 0; i < nports; i++)
            if (fds[i + 1].revents) take(&ports[i]);
    }
}

int main(int argc, char **argv)
{
    if (argc == 3 && strcmp(argv[1], "--plain") == 0) {
        make_plain(argv[2]);
        return 0;
    }
    if (argc < 3 || argc - 1 > PORTS) {
        fprintf(stderr, "usage: prog_link_emulator IFACE IFACE... | --plain IFACE\n");
        return 2;
    }
    for (nports = 0; nports < argc - 1; nports++) open_port(&ports[nports], argv[nports + 1]);
    run();
    long went = 0, lost = 0;
    for (int i = 0; i < nports; i++) {
        went += ports[i].went;
        lost += ports[i].lost;
        free(ports[i].queue);
        close(ports[i].fd);
    }
    printf("frames: %ld went, %ld were lost\n", went, lost);
    return 0;
}
