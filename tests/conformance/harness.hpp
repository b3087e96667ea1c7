// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "device/cpu/memory.hpp"
#include "transport/doorbell.hpp"
#include "transport/transport.hpp"

// One suite for every transport. A test runs one thread per rank over a fabric: n transports that
// reach each other. A transport joins the suite with one line in a file of its own:
//
//   const FabricRegistration kTcp("tcp", [](int rank_count) { return make_tcp_fabric(...); });
namespace farandole::conformance {

/// One rank's end of a fabric. All three belong to the fabric.
struct End {
  Transport* transport = nullptr;
  Memory* memory = nullptr;      // library-owned memory; always there
  Doorbell* doorbell = nullptr;  // the engine's bell; always there
};

/// Transports 0 .. n-1 that are not connected yet, and whatever they need.
class Fabric {
 public:
  virtual ~Fabric() = default;
  virtual End end(int rank) = 0;
};

using MakeFabric = std::function<Result<std::unique_ptr<Fabric>>(int rank_count)>;
struct FabricKind {
  std::string name;
  MakeFabric make;
};
std::vector<FabricKind> fabric_kinds();  // sorted by name
struct FabricRegistration {
  FabricRegistration(std::string name, MakeFabric make);
};

/// A rank inside run(): its transport, and helpers that fail the process rather than hang.
class Node {
 public:
  Node(int rank, int size, End end, std::atomic<int>& at_barrier)
      : rank_(rank), size_(size), end_(end), at_barrier_(at_barrier) {}

  int rank() const { return rank_; }
  int size() const { return size_; }
  Transport& transport() { return *end_.transport; }
  Memory& memory() { return *end_.memory; }
  Doorbell& doorbell() { return *end_.doorbell; }

  /// Calls progress() until the condition holds.
  void until(const char* what, const std::function<bool()>& condition);
  /// Until none of them is kActive.
  void wait(std::span<Send> sends, std::span<Receive> receives);
  void wait(Send& send) { wait(std::span(&send, 1), {}); }
  void wait(Receive& receive) { wait({}, std::span(&receive, 1)); }
  /// Calls progress() a few hundred times, so that most of what can arrive has arrived. No test
  /// may fail because something has not.
  void settle();
  /// Until every rank is here; progress goes on.
  void barrier();
  /// cancel() until it returns true.
  void cancel(OperationId operation);
  /// until() without its std::function, for tests that count allocations.
  void wait_quietly(const Transfer& transfer);

  /// What the rank waits for, for the watchdog's report.
  const char* waiting_for() const { return waiting_for_.load(); }

 private:
  void doze();
  int rank_, size_;
  End end_;
  std::atomic<int>& at_barrier_;
  int barriers_ = 0;
  std::atomic<const char*> waiting_for_{"nothing"};
};

/// Makes a fabric, connects all pairs, runs `body` on a thread per rank and keeps each rank's
/// progress() going until all bodies have returned. A run that takes longer than two minutes
/// says what each rank waits for and aborts.
void run(const FabricKind& kind, int rank_count, const std::function<void(Node&)>& body);
/// The same, but connects nothing.
void run_unconnected(const FabricKind& kind, int rank_count,
                     const std::function<void(Node&)>& body);

/// The tests are instantiated for every fabric.
class Conformance : public testing::TestWithParam<FabricKind> {};

/// Bytes that are unique to a seed, and their check, which returns -1 or where the first wrong one
/// is.
void fill(std::span<std::byte> data, std::uint64_t seed);
std::ptrdiff_t first_wrong(std::span<const std::byte> data, std::uint64_t seed);
std::uint64_t seed_of(int from, int to, std::uint64_t index);

/// The same byte everywhere, and its check.
void fill_all(std::span<std::byte> data, std::byte value);
bool is_all(std::span<const std::byte> data, std::byte value);

/// Transfers with everything set but the memory's content.
Tag tag_of(std::uint32_t sequence, std::uint32_t lane = 0);
Send send_of(int peer, Tag tag, std::span<const std::byte> source);
Receive receive_of(int peer, Tag tag, std::span<std::byte> target);

/// Memory of a message: the library's, or plain heap; `skew` bytes off its alignment.
class Buffer {
 public:
  enum class Kind : std::uint8_t { kOwned, kForeign };
  Buffer(Node& node, Kind kind, std::size_t bytes, std::size_t skew = 0);
  ~Buffer();
  Buffer(Buffer&& other) noexcept;
  Buffer(const Buffer&) = delete;
  std::span<std::byte> span() { return {start_, bytes_}; }
  std::byte* data() { return start_; }

 private:
  Memory* memory_ = nullptr;
  std::byte* block_ = nullptr;
  std::vector<std::byte> heap_;
  std::byte* start_ = nullptr;
  std::size_t bytes_ = 0;
};

/// operator new calls of this thread so far.
std::uint64_t allocations();

}  // namespace farandole::conformance
