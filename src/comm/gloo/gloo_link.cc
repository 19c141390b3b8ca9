/* lockstep_gloo.so: links over TCP by Gloo's pairs and unbound buffers. The only C++ of Lockstep,
 * because Gloo's interface is.
 *
 * Not by gloo::Context, which connects all to all: pairs are made one by one, so that ranks of one
 * machine have none. A channel is a slot of a pair; Gloo serves the messages of a slot in the order
 * in which they were started. Its own thread moves all bytes. Workload: few messages at a time, of
 * a hundred bytes (meetings) or of megabytes (slices).
 *
 * Gloo's waits have two weak points. A wait that runs into its timeout closes every connection; so
 * waits are without one, and a thread (watch) ends them. And a connection that breaks in the middle
 * of a message does not wake who waits for that message; so every pair has a receive that nobody
 * answers (sentinel), which such a break does end, and the watch looks at it.
 *
 * Who connects proves that it has read the job's store: both sides send what the other put there.
 * Nothing is encrypted. */
#include <algorithm>
#include <array>
#include <chrono>
#include <condition_variable>
#include <csignal>
#include <cstring>
#include <list>
#include <memory>
#include <mutex>
#include <new>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <pthread.h>
#include <sys/random.h>

#include <gloo/common/error.h>
#include <gloo/transport/context.h>
#include <gloo/transport/tcp/device.h>

#include "comm/gloo/interface.h"
#include "comm/link.h"

extern "C" {
#include "base/clock.h"
#include "base/memory.h"
}

namespace
{

using gloo::transport::Pair;
using gloo::transport::UnboundBuffer;
using std::chrono::milliseconds;

constexpr uint64_t HELLO = LS__CHANNELS, SENTINEL = LS__CHANNELS + 1; /* slots behind channels' */
constexpr milliseconds FOREVER { INT64_C(10) * 365 * 24 * 3600 * 1000 };
constexpr int64_t TICK_NS = 10 * 1000 * 1000;
constexpr size_t TOKEN = 16;

using token = std::array<char, TOKEN>;

/* Gloo's texts begin with "[file:line] ". */
const char *without_place(const char *text)
{
    const char *end = *text == '[' ? std::strstr(text, "] ") : nullptr;
    return end ? end + 2 : text;
}

/* A failure of which the text is told already. */
struct told : std::exception {
    explicit told(ls_status s) : status(s) {}
    ls_status status;
};

void check(ls_status status)
{
    if (status != LS_OK) throw told(status);
}

/* No exception leaves the plugin. */
template <class Action> ls_status guarded(Action &&action) noexcept
{
    try {
        action();
        return LS_OK;
    } catch (const told &e) {
        return e.status;
    } catch (const std::bad_alloc &) {
        return ls_fail(LS_ERR_MEMORY, "out of memory for a message");
    } catch (const std::exception &e) {
        return ls_fail(LS_ERR_PEER, "%s", without_place(e.what()));
    } catch (...) {
        return ls_fail(LS_ERR_INTERNAL, "Gloo failed without a text");
    }
}

/* Signals are for the program's own threads: those made here block all but a crash's. */
class quiet_threads
{
  public:
    quiet_threads()
    {
        sigset_t all;
        sigfillset(&all);
        for (int crash : { SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT }) sigdelset(&all, crash);
        pthread_sigmask(SIG_BLOCK, &all, &before);
    }
    ~quiet_threads()
    {
        pthread_sigmask(SIG_SETMASK, &before, nullptr);
    }
    quiet_threads(const quiet_threads &) = delete;

  private:
    sigset_t before;
};

/* Gloo writes in the caller's thread too, and a broken connection raises SIGPIPE there. */
class no_sigpipe
{
  public:
    no_sigpipe()
    {
        sigset_t pending;
        sigemptyset(&pipe);
        sigaddset(&pipe, SIGPIPE);
        sigpending(&pending);
        was_pending = sigismember(&pending, SIGPIPE) == 1;
        pthread_sigmask(SIG_BLOCK, &pipe, &before);
    }
    ~no_sigpipe()
    {
        const struct timespec at_once = {};
        if (!was_pending) sigtimedwait(&pipe, nullptr, &at_once);
        pthread_sigmask(SIG_SETMASK, &before, nullptr);
    }
    no_sigpipe(const no_sigpipe &) = delete;

  private:
    sigset_t pipe, before;
    bool was_pending;
};

/* --- the watch --- */

/* Ends the wait of the link's thread at its deadline, when the job ends, when the peer is lost. */
class watch
{
  public:
    struct wait {
        UnboundBuffer *buffer;
        bool sends;
        const ls__patience *patience;
        UnboundBuffer *sentinel;
    };

    watch() : thread([this] { run(); }) {}
    ~watch()
    {
        {
            std::lock_guard<std::mutex> held(lock);
            over = true;
        }
        wake.notify_one();
        thread.join();
    }
    watch(const watch &) = delete;

    void begin(const wait &w)
    {
        std::lock_guard<std::mutex> held(lock);
        current = w;
        verdict = LS_OK;
        if (asleep) wake.notify_one();
    }

    /* Why the wait was ended from here; LS_OK = it was not. */
    ls_status end(std::string &text)
    {
        std::lock_guard<std::mutex> held(lock);
        current.buffer = nullptr;
        text.swap(why);
        return verdict;
    }

  private:
    void run()
    {
        bool idle = false; /* since a whole tick */
        std::unique_lock<std::mutex> held(lock);
        while (!over) {
            if (current.buffer) {
                idle = false;
                look();
                wake.wait_for(held, std::chrono::nanoseconds(until_next()));
            } else if (!idle) {
                idle = true;
                wake.wait_for(held, std::chrono::nanoseconds(TICK_NS));
            } else {
                asleep = true;
                wake.wait(held, [this] { return over || current.buffer; });
                asleep = false;
            }
        }
    }

    int64_t until_next() const
    {
        int64_t deadline = current.patience->deadline_ns;
        int64_t left = deadline == INT64_MAX ? TICK_NS : deadline - ls__now_ns();
        return std::clamp(left, INT64_C(100000), TICK_NS);
    }

    void look()
    {
        const ls__patience *p = current.patience;
        if (verdict != LS_OK) return;
        if (p->ended && p->ended(p->user))
            rule(LS_ERR_PEER, "the job is being ended");
        else if (p->deadline_ns != INT64_MAX && ls__now_ns() >= p->deadline_ns)
            rule(LS_ERR_TIMEOUT, "no bytes came or went in time");
        else if (current.sentinel)
            look_at_sentinel();
    }

    /* A wait that was told to end before it began returns at once, or throws why it is in vain. */
    void look_at_sentinel()
    {
        try {
            current.sentinel->abortWaitRecv();
            current.sentinel->waitRecv(nullptr, FOREVER);
        } catch (const std::exception &e) {
            rule(LS_ERR_PEER, without_place(e.what()));
        }
    }

    void rule(ls_status status, const char *text)
    {
        verdict = status;
        why = text;
        if (current.sends)
            current.buffer->abortWaitSend();
        else
            current.buffer->abortWaitRecv();
    }

    std::mutex lock;
    std::condition_variable wake;
    bool over = false, asleep = false;
    wait current = {};
    ls_status verdict = LS_OK;
    std::string why;
    std::thread thread; /* last: it uses the others */
};

/* --- the link --- */

struct peer {
    std::unique_ptr<Pair> *pair = nullptr; /* the context's; null = of this machine */
    char nothing = 0;
    std::unique_ptr<UnboundBuffer> sentinel;

    peer() = default;
    peer(const peer &) = delete;
    /* The pair first: as long as it is open, Gloo's thread may tell the sentinel that it breaks. */
    ~peer()
    {
        if (pair) pair->reset();
    }
};

struct message {
    std::unique_ptr<UnboundBuffer> buffer;
    std::list<message>::iterator self;
};

struct gloo_link : ls__link {
    explicit gloo_link(const ls__link_options &options);

    std::unique_ptr<UnboundBuffer> post(int to, uint64_t slot, bool sends, void *data,
                                        size_t nbytes);
    void await(UnboundBuffer *buffer, int from, bool sends, const ls__patience *patience);
    void greet(const std::vector<token> &theirs, const token &ours, const ls__patience *patience);
    void close_pairs();

    std::list<message> messages;
    bool aborted = false;
    std::shared_ptr<gloo::transport::Device> device;
    std::shared_ptr<gloo::transport::Context> context;
    std::vector<peer> peers; /* (size), after the context, which has their pairs */
    std::unique_ptr<watch> watcher;
};

gloo_link *of(ls__link *link)
{
    return static_cast<gloo_link *>(link);
}

std::unique_ptr<UnboundBuffer> gloo_link::post(int to, uint64_t slot, bool sends, void *data,
                                               size_t nbytes)
{
    no_sigpipe guard;
    auto buffer = context->createUnboundBuffer(data, nbytes);
    if (sends)
        buffer->send(to, slot, 0, nbytes);
    else
        buffer->recv(to, slot, 0, nbytes);
    return buffer;
}

void gloo_link::await(UnboundBuffer *buffer, int from, bool sends, const ls__patience *patience)
{
    struct watched { /* ends it when Gloo throws, too */
        watch &w;
        std::string text;
        ls_status verdict = LS_OK;
        bool ended = false;
        void end()
        {
            if (!ended) verdict = w.end(text);
            ended = true;
        }
        ~watched()
        {
            end();
        }
    };
    auto wait_for = [&](milliseconds most) {
        return sends ? buffer->waitSend(nullptr, most) : buffer->waitRecv(nullptr, most);
    };
    for (;;) {
        watcher->begin({ buffer, sends, patience, peers[size_t(from)].sentinel.get() });
        watched w { *watcher, {} };
        bool done = wait_for(FOREVER);
        w.end();
        if (done) return;
        if (w.verdict == LS_OK) continue;
        /* A message that was there already counts: its sender may be gone since. When it was not,
         * Gloo closes all pairs, as the abort will that follows. */
        try {
            if (wait_for(milliseconds(0))) return;
        } catch (const gloo::Exception &) {
        }
        throw told(ls_fail(w.verdict, "%s", w.text.c_str()));
    }
}

void gloo_link::close_pairs()
{
    for (peer &p : peers)
        if (p.pair) (*p.pair)->close();
}

/* --- opening --- */

milliseconds time_left(int64_t deadline_ns)
{
    if (deadline_ns == INT64_MAX) return milliseconds(0); /* Gloo's word for none */
    return milliseconds(std::max<int64_t>((deadline_ns - ls__now_ns()) / 1000000, 1));
}

std::string key_of(int rank)
{
    return "gloo." + std::to_string(rank);
}

/* What a rank tells the others: its token, then per rank the length and the bytes of the address at
 * which it waits for that rank; 0 = none. */
std::string told_by(const token &ours, const std::vector<std::vector<char>> &addresses)
{
    std::string text(ours.begin(), ours.end());
    for (const auto &address : addresses) {
        text.push_back(char(address.size()));
        text.append(address.begin(), address.end());
    }
    return text;
}

/* Out of what the rank told, the address for reader. */
std::vector<char> address_in(const char *text, size_t nbytes, int reader, token &theirs)
{
    size_t at = TOKEN;
    if (nbytes < TOKEN) throw std::runtime_error("what it put into the store is too short");
    std::memcpy(theirs.data(), text, TOKEN);
    for (int r = 0; at < nbytes; r++) {
        size_t length = static_cast<unsigned char>(text[at++]);
        if (length > nbytes - at) break;
        if (r == reader && length) return std::vector<char>(text + at, text + at + length);
        at += length;
    }
    throw std::runtime_error("what it put into the store has no address for this rank");
}

std::vector<char> get_address(const ls__link_options &o, int from, int64_t deadline_ns,
                              token &theirs)
{
    char *value = nullptr;
    size_t nbytes = 0;
    int64_t left = time_left(deadline_ns).count();
    check(o.store->get(o.store->user, key_of(from).c_str(), left ? int(left) : LS_NONE, &value,
                       &nbytes));
    std::unique_ptr<char, void (*)(void *)> held(value, ls__free);
    return address_in(value, nbytes, o.rank, theirs);
}

std::shared_ptr<gloo::transport::Device> device_towards(const char *root)
{
    char address[LS__INTERFACE_TEXT];
    check(ls__interface_probe(root ? root : "", address));
    gloo::transport::tcp::attr attributes(address);
    return gloo::transport::tcp::CreateDevice(attributes);
}

/* After all are connected, a message each way proves that it is the right one. */
void gloo_link::greet(const std::vector<token> &theirs, const token &ours,
                      const ls__patience *patience)
{
    const size_t size = peers.size();
    std::vector<token> sent(theirs), got(size);
    std::vector<std::unique_ptr<UnboundBuffer>> sends(size), takes(size);
    for (size_t r = 0; r < size; r++) {
        if (!peers[r].pair) continue;
        peers[r].sentinel = post(int(r), SENTINEL, false, &peers[r].nothing, 1);
        takes[r] = post(int(r), HELLO, false, got[r].data(), TOKEN);
        sends[r] = post(int(r), HELLO, true, sent[r].data(), TOKEN);
    }
    for (size_t r = 0; r < size; r++) {
        if (!peers[r].pair) continue;
        await(takes[r].get(), int(r), false, patience);
        await(sends[r].get(), int(r), true, patience);
        if (got[r] != ours)
            throw std::runtime_error("somebody who is not of this job connected as rank " +
                                     std::to_string(r));
    }
}

gloo_link::gloo_link(const ls__link_options &o) : ls__link(), peers(size_t(o.size))
{
    token ours = {};
    std::vector<token> theirs(peers.size());
    std::vector<std::vector<char>> addresses(peers.size());
    ls__patience patience = { INT64_MAX, nullptr, nullptr };
    if (o.timeout_ms != LS_NONE)
        patience.deadline_ns = ls__now_ns() + INT64_C(1000000) * o.timeout_ms;

    device = device_towards(o.root);
    watcher = std::make_unique<watch>();
    context = device->createContext(o.rank, o.size);
    context->setTimeout(time_left(patience.deadline_ns) / 5 +
                        milliseconds(patience.deadline_ns != INT64_MAX)); /* it waits 5 times it */
    for (int r = 0; r < o.size; r++) {
        if (o.nodes[r] == o.nodes[o.rank]) continue;
        peers[size_t(r)].pair = &context->createPair(r);
        addresses[size_t(r)] = (*peers[size_t(r)].pair)->address().bytes();
    }
    if (getrandom(ours.data(), TOKEN, 0) != ssize_t(TOKEN))
        throw std::runtime_error("the kernel gives no random bytes");
    std::string text = told_by(ours, addresses);
    check(o.store->set(o.store->user, key_of(o.rank).c_str(), text.data(), text.size()));
    for (int r = 0; r < o.size; r++) {
        if (!peers[size_t(r)].pair) continue;
        try {
            auto address = get_address(o, r, patience.deadline_ns, theirs[size_t(r)]);
            (*peers[size_t(r)].pair)->connect(address);
        } catch (const told &) {
            throw;
        } catch (const std::exception &e) {
            throw std::runtime_error("no connection to rank " + std::to_string(r) + ": " +
                                     without_place(e.what()));
        }
    }
    greet(theirs, ours, &patience);
}

/* --- the table --- */

ls_status link_start(ls__link *link, ls__transfer *t)
{
    return guarded([&] {
        gloo_link *l = of(link);
        if (l->aborted) throw std::runtime_error("the link was aborted");
        l->messages.emplace_front();
        message &m = l->messages.front();
        m.self = l->messages.begin();
        try {
            m.buffer = l->post(t->peer, t->channel, t->sends, t->data, t->nbytes);
        } catch (...) {
            l->messages.pop_front();
            throw;
        }
        t->engine = &m;
    });
}

ls_status link_wait(ls__link *link, ls__transfer *t, const ls__patience *patience)
{
    return guarded([&] {
        gloo_link *l = of(link);
        message *m = static_cast<message *>(t->engine);
        l->await(m->buffer.get(), t->peer, t->sends, patience);
        t->engine = nullptr;
        l->messages.erase(m->self);
    });
}

void link_abort(ls__link *link)
{
    (void)guarded([&] {
        of(link)->aborted = true;
        of(link)->close_pairs(); /* first: a pair must not meet a message that is gone */
        of(link)->messages.clear();
    });
}

void link_destroy(ls__link *link)
{
    if (!link) return;
    if (!of(link)->messages.empty()) link_abort(link);
    (void)guarded([&] { delete of(link); });
}

ls_status link_open(const ls__link_options *options, ls__link **out)
{
    *out = nullptr;
    return guarded([&] {
        quiet_threads quiet;
        auto link = std::make_unique<gloo_link>(*options);
        link->start = link_start;
        link->wait = link_wait;
        link->abort = link_abort;
        link->destroy = link_destroy;
        *out = link.release();
    });
}

} // namespace

/* The type has taken the name, so the symbol is given it by hand. */
extern "C" __attribute__((visibility("default")))
const ls__link_table table __asm__("ls__link_table");
const ls__link_table table = { "gloo", link_open, nullptr };
