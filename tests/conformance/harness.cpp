// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "conformance/harness.hpp"

#include <poll.h>
#include <sched.h>

#include <algorithm>
#include <array>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <mutex>
#include <new>
#include <thread>

namespace {
thread_local std::uint64_t allocation_count = 0;
}

void* operator new(std::size_t bytes) {
  ++allocation_count;
  if (void* block = std::malloc(bytes)) return block;
  std::abort();
}
void operator delete(void* block) noexcept {
  std::free(block);
}
void operator delete(void* block, std::size_t) noexcept {
  std::free(block);
}

namespace farandole::conformance {
namespace {

constexpr auto kLimit = std::chrono::minutes(2);
constexpr int kSpins = 100;  // calls of progress() without effect, some microseconds

std::vector<FabricKind>& registered() {
  static std::vector<FabricKind> kinds;
  return kinds;
}

/// Aborts the process with a report unless it is destroyed in time.
class Watchdog {
 public:
  explicit Watchdog(std::deque<Node>& nodes) : thread_([this, &nodes] { watch(nodes); }) {}
  ~Watchdog() {
    {
      std::scoped_lock lock(mutex_);
      done_ = true;
    }
    wake_.notify_one();
    thread_.join();
  }

 private:
  void watch(std::deque<Node>& nodes) {
    std::unique_lock lock(mutex_);
    if (wake_.wait_for(lock, kLimit, [this] { return done_; })) return;
    for (Node& node : nodes) {
      std::fprintf(stderr, "rank %d of %d waits for %s\n", node.rank(), node.size(),
                   node.waiting_for());
    }
    std::abort();
  }

  std::mutex mutex_;
  std::condition_variable wake_;
  bool done_ = false;
  std::thread thread_;
};

std::uint64_t mix(std::uint64_t x) {
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

template <class T>
T transfer_of(int peer, Tag tag, std::size_t bytes) {
  T transfer;
  transfer.peer = Rank{peer};
  transfer.tag = tag;
  transfer.signature.count = bytes;
  transfer.bytes = Bytes{bytes};
  return transfer;
}

}  // namespace

std::vector<FabricKind> fabric_kinds() {
  std::vector<FabricKind> kinds = registered();
  std::ranges::sort(kinds, {}, &FabricKind::name);
  return kinds;
}

FabricRegistration::FabricRegistration(std::string name, MakeFabric make) {
  registered().push_back({std::move(name), std::move(make)});
}

void Node::until(const char* what, const std::function<bool()>& condition) {
  waiting_for_ = what;
  for (int idle = 0; !condition(); ++idle) {
    if (transport().progress()) idle = 0;
    if (idle > kSpins) doze();
  }
  waiting_for_ = "nothing";
}

void Node::wait_quietly(const Transfer& transfer) {
  waiting_for_ = "a transfer";
  for (int idle = 0; transfer.state == TransferState::kActive; ++idle) {
    if (transport().progress()) idle = 0;
    if (idle > kSpins) doze();
  }
}

/// Leaves the processor to the other ranks until one of them rings, or for a millisecond, since
/// not every condition that until() waits for comes with a ring.
void Node::doze() {
  doorbell().arm();
  if (!transport().progress()) {
    pollfd wakers[2] = {{doorbell().fd(), POLLIN, 0}, {transport().wait_fd(), POLLIN, 0}};
    (void)::poll(wakers, 2, 1);
  }
  doorbell().disarm();
  doorbell().drain();
}

void Node::wait(std::span<Send> sends, std::span<Receive> receives) {
  const auto ended = [](const Transfer& t) { return t.state != TransferState::kActive; };
  until("sends", [&] { return std::ranges::all_of(sends, ended); });
  until("receives", [&] { return std::ranges::all_of(receives, ended); });
}

void Node::settle() {
  for (int yields = 0; yields < 10; ++yields) {
    for (int i = 0; i < 30; ++i) (void)transport().progress();
    ::sched_yield();
  }
}

void Node::barrier() {
  const int target = ++barriers_ * size_;
  at_barrier_.fetch_add(1);
  until("a barrier", [&] { return at_barrier_.load() >= target; });
}

void Node::cancel(OperationId operation) {
  until("cancel()", [&] { return transport().cancel(operation); });
}

void run_unconnected(const FabricKind& kind, int rank_count,
                     const std::function<void(Node&)>& body) {
  auto fabric = kind.make(rank_count);
  ASSERT_TRUE(fabric) << fabric.error().message;
  std::atomic<int> at_barrier{0};
  std::deque<Node> nodes;
  for (int rank = 0; rank < rank_count; ++rank) {
    nodes.emplace_back(rank, rank_count, (*fabric)->end(rank), at_barrier);
  }
  const Watchdog watchdog(nodes);
  std::vector<std::thread> threads;
  for (Node& node : nodes) {
    threads.emplace_back([&node, &body] {
      body(node);
      node.barrier();
    });
  }
  for (std::thread& thread : threads) thread.join();
}

void run(const FabricKind& kind, int rank_count, const std::function<void(Node&)>& body) {
  run_unconnected(kind, rank_count, [&body](Node& node) {
    std::vector<Rank> peers;
    for (int peer = 0; peer < node.size(); ++peer) {
      if (peer != node.rank()) peers.push_back(Rank{peer});
    }
    const auto connected =
        node.transport().connect(peers, Deadline::after(std::chrono::seconds(30)));
    EXPECT_TRUE(connected) << (connected ? "" : connected.error().message);
    if (connected) body(node);
  });
}

namespace {

using Part = std::array<std::uint64_t, 512>;

/// What a seed gives, from byte `at` on.
Part part_of(std::uint64_t seed, std::size_t at) {
  Part part;
  for (std::size_t i = 0; i < part.size(); ++i) part[i] = mix(seed + at + 8 * i);
  return part;
}

}  // namespace

// By long calls, which ThreadSanitizer looks at as a whole.
void fill(std::span<std::byte> data, std::uint64_t seed) {
  for (std::size_t at = 0; at < data.size(); at += sizeof(Part)) {
    const Part part = part_of(seed, at);
    std::memcpy(&data[at], part.data(), std::min(sizeof(part), data.size() - at));
  }
}

void fill_all(std::span<std::byte> data, std::byte value) {
  if (!data.empty()) std::memset(data.data(), std::to_integer<int>(value), data.size());
}

bool is_all(std::span<const std::byte> data, std::byte value) {
  if (data.empty()) return true;
  return data[0] == value && std::memcmp(data.data(), data.data() + 1, data.size() - 1) == 0;
}

std::ptrdiff_t first_wrong(std::span<const std::byte> data, std::uint64_t seed) {
  for (std::size_t at = 0; at < data.size(); at += sizeof(Part)) {
    const Part part = part_of(seed, at);
    const auto wanted =
        std::as_bytes(std::span(part)).first(std::min(sizeof(Part), data.size() - at));
    if (std::memcmp(&data[at], wanted.data(), wanted.size()) == 0) continue;
    const auto wrong = std::ranges::mismatch(data.subspan(at), wanted).in1;
    return wrong - data.begin();
  }
  return -1;
}

std::uint64_t seed_of(int from, int to, std::uint64_t index) {
  return mix(mix(static_cast<std::uint64_t>(from) << 32 | static_cast<std::uint32_t>(to)) + index);
}

Tag tag_of(std::uint32_t sequence, std::uint32_t lane) {
  return Tag{{1, sequence}, lane};
}

Send send_of(int peer, Tag tag, std::span<const std::byte> source) {
  Send send = transfer_of<Send>(peer, tag, source.size());
  send.source = source.data();
  return send;
}

Receive receive_of(int peer, Tag tag, std::span<std::byte> target) {
  Receive receive = transfer_of<Receive>(peer, tag, target.size());
  receive.target = target.data();
  return receive;
}

Buffer::Buffer(Node& node, Kind kind, std::size_t bytes, std::size_t skew) : bytes_(bytes) {
  if (kind == Kind::kOwned) {
    auto block = node.memory().allocate(Bytes{bytes + skew});
    EXPECT_TRUE(block) << (block ? "" : block.error().message);
    if (!block) std::abort();
    memory_ = &node.memory();
    block_ = *block;
    start_ = block_ + skew;
  } else {
    heap_.resize(bytes + skew + 1);
    start_ = heap_.data() + skew;
  }
}

Buffer::~Buffer() {
  if (memory_ != nullptr) memory_->release(block_);
}

Buffer::Buffer(Buffer&& other) noexcept
    : memory_(std::exchange(other.memory_, nullptr)),
      block_(other.block_),
      heap_(std::move(other.heap_)),
      start_(other.start_),
      bytes_(other.bytes_) {}

std::uint64_t allocations() {
  return allocation_count;
}

}  // namespace farandole::conformance
