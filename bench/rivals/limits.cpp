// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
// What the cores of this machine reach, one alone and all together: from memory, out of another
// core's cache, through TCP on the loopback interface. Prints one object of JSON: rates in GB/s
// (10^9 bytes per second), the best of several passes, since they are to bound what is possible;
// hops in microseconds, one way, and what sending 4 bytes takes of whoever sends again and again.
// `limits line`: line_hop_us alone.
#include <arpa/inet.h>
#include <emmintrin.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;
using Vector [[gnu::vector_size(64)]] = long long;

constexpr int kCoresMax = 256;
constexpr int kPasses = 10;
constexpr std::size_t kMemory = std::size_t{256} << 20;  // of each core, more than caches hold
constexpr std::size_t kExchange = std::size_t{4} << 20;
constexpr std::size_t kSocketBytes = std::size_t{8} << 20, kSocketPieceMax = std::size_t{1} << 20;
constexpr int kRoundTrips = 20'000;

struct Shared {
  alignas(64) std::atomic<std::uint32_t> arrived{0};
  alignas(64) std::atomic<std::uint32_t> ping{0};
  alignas(64) std::atomic<std::uint32_t> pong{0};
  alignas(64) std::array<std::atomic<double>, kCoresMax> seconds;
};

void fail(const char* what) {
  std::perror(what);
  std::exit(1);
}

std::byte* map(std::size_t bytes, int sharing) {
  void* const place =
      mmap(nullptr, bytes, PROT_READ | PROT_WRITE, sharing | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (place == MAP_FAILED) fail("mmap");
  madvise(place, bytes, MADV_HUGEPAGE);  // all that memory can give, where the system has any
  return static_cast<std::byte*>(place);
}

/// One process per core, this one among them.
class Team {
 public:
  Team(Shared& shared, int rank, int size) : shared_(shared), rank_(rank), size_(size) {}
  int rank() const { return rank_; }
  int size() const { return size_; }
  void barrier() {
    turn_ += static_cast<std::uint32_t>(size_);
    shared_.arrived.fetch_add(1);
    while (static_cast<std::int32_t>(shared_.arrived.load() - turn_) < 0) __builtin_ia32_pause();
  }
  /// Seconds that the slowest of the first `active` ranks takes for `work`, the least of all
  /// passes; every rank calls `prepare` before each.
  template <class Prepare, class Work>
  double fastest(int active, Prepare prepare, Work work) {
    double least = 1e9;
    for (int pass = 0; pass < kPasses; ++pass) {
      prepare();
      barrier();
      const auto start = Clock::now();
      if (rank_ < active) work();
      const std::chrono::duration<double> spent = Clock::now() - start;
      shared_.seconds[std::size_t(rank_)] = spent.count();
      barrier();
      double slowest = 0;
      for (int r = 0; r < active; ++r) slowest = std::max(slowest, shared_.seconds[r].load());
      least = std::min(least, slowest);
      barrier();
    }
    return least;
  }

 private:
  Shared& shared_;
  int rank_, size_;
  std::uint32_t turn_ = 0;
};

void read(const std::byte* from, std::size_t bytes) {
  const auto* vectors = reinterpret_cast<const Vector*>(from);
  Vector sums[4] = {};
  for (std::size_t i = 0; i < bytes / sizeof(Vector); i += 4) {
    for (std::size_t j = 0; j < 4; ++j) sums[j] += vectors[i + j];
  }
  const Vector sum = sums[0] + sums[1] + sums[2] + sums[3];
  asm volatile("" ::"x"(sum[0]));  // somebody wants it
}

void write(std::byte* to, std::size_t bytes) {
  for (std::size_t i = 0; i < bytes; i += sizeof(__m128i)) {
    _mm_stream_si128(reinterpret_cast<__m128i*>(to + i), _mm_set1_epi8(1));  // past the caches
  }
  _mm_sfence();
}

struct Rates {
  double one = 0, all = 0;
};

/// GB/s of one core, and of all together.
template <class Prepare, class Work>
Rates rates(Team& team, std::size_t bytes, Prepare prepare, Work work) {
  const auto rate = [&](int active) {
    return double(bytes) * active / team.fastest(active, prepare, work) / 1e9;
  };
  return {rate(1), rate(team.size())};
}

/// What a rank reads of a buffer that the next one has just written; the best size counts.
Rates between_caches(Team& team, std::byte* arenas) {
  std::byte* const mine = arenas + std::size_t(team.rank()) * kExchange;
  const std::byte* const theirs = arenas + std::size_t((team.rank() + 1) % team.size()) * kExchange;
  Rates best;
  for (std::size_t bytes = 64 << 10; bytes <= kExchange; bytes *= 2) {
    const Rates found = rates(
        team, bytes, [&] { std::memset(mine, team.rank(), bytes); }, [&] { read(theirs, bytes); });
    best = {std::max(best.one, found.one), std::max(best.all, found.all)};
  }
  return best;
}

double line_hop_us(Team& team, Shared& shared) {
  const double seconds = team.fastest(
      2, [] {},
      [&] {
        auto& mine = team.rank() == 0 ? shared.ping : shared.pong;
        auto& theirs = team.rank() == 0 ? shared.pong : shared.ping;
        const std::uint32_t start = mine.load();  // of both, since each pass ends alike
        for (std::uint32_t i = 1; i <= kRoundTrips; ++i) {
          if (team.rank() == 0) mine.store(start + i, std::memory_order_release);
          while (theirs.load(std::memory_order_acquire) != start + i) __builtin_ia32_pause();
          if (team.rank() == 1) mine.store(start + i, std::memory_order_release);
        }
      });
  return seconds / kRoundTrips / 2 * 1e6;
}

/// Two ends of a TCP connection on the loopback interface.
std::array<int, 2> connection() {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof address;
  auto* const generic = reinterpret_cast<sockaddr*>(&address);
  const int listener = socket(AF_INET, SOCK_STREAM, 0), one = socket(AF_INET, SOCK_STREAM, 0);
  if (bind(listener, generic, length) != 0 || listen(listener, 1) != 0 ||
      getsockname(listener, generic, &length) != 0 || connect(one, generic, length) != 0) {
    fail("connection");
  }
  const int other = accept(listener, nullptr, nullptr);
  close(listener);
  const int yes = 1;
  setsockopt(one, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
  setsockopt(other, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
  return {one, other};
}

/// Sends and receives `bytes` at the same time, at most `piece` in a call.
void exchange(int socket, std::byte* out, std::byte* in, std::size_t bytes, std::size_t piece) {
  for (std::size_t sent = 0, received = 0; sent < bytes || received < bytes;) {
    if (sent < bytes) {
      const auto n = send(socket, out, std::min(bytes - sent, piece), MSG_DONTWAIT);
      if (n > 0) sent += std::size_t(n);
    }
    if (received < bytes) {
      const auto n = recv(socket, in, std::min(bytes - received, piece), MSG_DONTWAIT);
      if (n == 0) fail("recv");
      if (n > 0) received += std::size_t(n);
    }
  }
}

/// GB/s that arrive at the two ranks of one pair, which counts as one core, and of all pairs.
Rates through_sockets(Team& team, int socket) {
  std::vector<std::byte> out(kSocketPieceMax), in(kSocketPieceMax);
  const auto rate = [&](int active) {
    double least = 1e9;
    for (std::size_t piece = 64 << 10; piece <= kSocketPieceMax; piece *= 2) {
      const auto work = [&] { exchange(socket, out.data(), in.data(), kSocketBytes, piece); };
      least = std::min(least, team.fastest(active, [] {}, work));
    }
    return double(kSocketBytes) * active / least / 1e9;
  };
  return {rate(2), rate(team.size() / 2 * 2)};
}

double socket_hop_us(Team& team, int socket) {
  const double seconds = team.fastest(
      2, [] {},
      [&] {
        char byte = 0;
        for (int i = 0; i < kRoundTrips; ++i) {
          if (team.rank() == 0) send(socket, &byte, 1, 0);
          while (recv(socket, &byte, 1, MSG_DONTWAIT) != 1) __builtin_ia32_pause();
          if (team.rank() == 1) send(socket, &byte, 1, 0);
        }
      });
  return seconds / kRoundTrips / 2 * 1e6;
}

/// What one message of many costs that follow each other, one way, to a peer that only reads.
double socket_send_us(Team& team, int socket) {
  constexpr std::size_t kMessage = 4;
  const double seconds = team.fastest(
      2, [] {},
      [&] {
        std::array<char, 64 << 10> bytes{};
        for (int i = 0; i < kRoundTrips && team.rank() == 0; ++i) {
          if (send(socket, bytes.data(), kMessage, 0) != kMessage) fail("send");
        }
        for (std::size_t read = 0; read < kMessage * kRoundTrips && team.rank() == 1;) {
          const auto n = recv(socket, bytes.data(), bytes.size(), MSG_DONTWAIT);
          if (n > 0) read += std::size_t(n);
        }
      });
  return seconds / kRoundTrips * 1e6;
}

void print(const char* name, Rates rates) {
  std::printf("\"%s\": {\"one\": %.1f, \"all\": %.1f}, ", name, rates.one, rates.all);
}

}  // namespace

int main(int argc, char** argv) {
  cpu_set_t allowed;
  sched_getaffinity(0, sizeof allowed, &allowed);
  std::vector<int> cores;
  for (int core = 0; core < CPU_SETSIZE && cores.size() < kCoresMax; ++core) {
    if (CPU_ISSET(core, &allowed)) cores.push_back(core);
  }
  const int size = static_cast<int>(cores.size());
  if (size < 2) {
    std::fprintf(stderr, "one core has nobody to exchange with\n");
    return 1;
  }
  auto* const shared = new (map(sizeof(Shared), MAP_SHARED)) Shared;
  std::byte* const arenas = map(kExchange * std::size_t(size), MAP_SHARED);
  std::vector<int> sockets;
  for (int pair = 0; pair < size / 2; ++pair) {
    for (const int end : connection()) sockets.push_back(end);
  }
  sockets.resize(std::size_t(size), -1);  // an odd core has none
  int rank = 0;
  for (int r = 1; r < size && rank == 0; ++r) {
    if (fork() == 0) rank = r;
  }
  cpu_set_t own;
  CPU_ZERO(&own);
  CPU_SET(cores[std::size_t(rank)], &own);
  sched_setaffinity(0, sizeof own, &own);

  Team team(*shared, rank, size);
  if (argc > 1 && std::strcmp(argv[1], "line") == 0) {
    const double hop = line_hop_us(team, *shared);
    if (rank != 0) return 0;
    while (wait(nullptr) > 0) {
    }
    std::printf("{\"line_hop_us\": %.3f}\n", hop);
    return 0;
  }
  std::byte* const from = map(kMemory, MAP_PRIVATE);
  std::byte* const to = map(kMemory, MAP_PRIVATE);
  std::memset(from, 1, kMemory);
  std::memset(to, 1, kMemory);
  const auto nothing = [] {};
  const Rates reads = rates(team, kMemory, nothing, [&] { read(from, kMemory); });
  const Rates writes = rates(team, kMemory, nothing, [&] { write(to, kMemory); });
  const Rates copies = rates(team, kMemory, nothing, [&] { std::memcpy(to, from, kMemory); });
  const Rates lines = between_caches(team, arenas);
  const double line_hop = line_hop_us(team, *shared);
  const Rates streams = through_sockets(team, sockets[std::size_t(rank)]);
  const double socket_hop = socket_hop_us(team, sockets[std::size_t(rank)]);
  const double socket_send = socket_send_us(team, sockets[std::size_t(rank)]);
  if (rank != 0) return 0;
  while (wait(nullptr) > 0) {
  }
  std::printf("{\"cores\": %d, ", size);
  print("read", reads);
  print("write", writes);
  print("copy", copies);
  print("lines", lines);
  print("sockets", streams);
  std::printf("\"line_hop_us\": %.3f, \"socket_hop_us\": %.3f, ", line_hop, socket_hop);
  std::printf("\"socket_send_us\": %.3f}\n", socket_send);
  return 0;
}
