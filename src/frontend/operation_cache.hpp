// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "engine/collective.hpp"
#include "farandole/farandole.hpp"
#include "frontend/extent.hpp"

namespace farandole {

struct Call;
struct Plan;

/// Finished collectives, which run again for similar calls: most of the cost of a small collective
/// is choosing its plan and making its operation. Similar calls that are outstanding at the same
/// time have an operation each, all over one bound program.
///
/// Threads   find() from any; the rest under the communicator's lock.
/// Memory    kSets * kWays operations, each of at most kTransfersMax transfers a round and
///           kScratchBytesMax of scratch.
class OperationCache {
  struct Entry {
    std::atomic<std::size_t> hash{0};  // of the call that it is for; a hint
    std::atomic<bool> taken{false};
    // Only for the thread that has set `taken`.
    std::uint64_t generation = 0;  // of the cache when this was kept; outdated: empty
    Arguments arguments;           // of the last call, whose options follow
    int size_shift = 0;
    bool deterministic = false;
    std::uint16_t purpose = 0;
    std::string algorithm;
    Extent extents;
    std::shared_ptr<CollectiveOperation> operation;
    std::atomic<std::uint64_t> calls{0};  // found here and not yet added to the plan's
    // Written by that thread under the communicator's lock; either suffices for reading.
    std::size_t bytes = 0;  // of the call's larger buffer on this rank
    std::shared_ptr<Plan> plan;
  };

 public:
  /// An operation that belongs to the holder until it is submitted. No other call finds it before
  /// the lease ends.
  class Lease {
   public:
    Lease() = default;
    Lease(Lease&& other) noexcept
        : entry_(std::exchange(other.entry_, nullptr)), own_(std::move(other.own_)) {}
    Lease& operator=(Lease&& other) noexcept {
      std::swap(entry_, other.entry_);
      std::swap(own_, other.own_);
      return *this;
    }
    ~Lease() {
      if (entry_ != nullptr) entry_->taken.store(false, std::memory_order_release);
    }
    explicit operator bool() const { return entry_ != nullptr || own_ != nullptr; }
    Operation& operator*() const { return entry_ != nullptr ? *entry_->operation : *own_; }
    std::shared_ptr<Operation> shared() const {
      return entry_ != nullptr ? entry_->operation : own_;
    }

   private:
    friend class OperationCache;
    explicit Lease(Entry& entry) : entry_(&entry) {}
    explicit Lease(std::shared_ptr<Operation> own) : own_(std::move(own)) {}
    Entry* entry_ = nullptr;
    std::shared_ptr<Operation> own_;  // without an entry: it runs once
  };

  /// The operation of a similar call, ready to run again, if it has succeeded, nothing else holds
  /// it any more and the call's buffers are valid; else none. Counts the call.
  Lease find(const Call& call, const Group& group);
  /// Keeps the operation that a call made, if it can run again, and counts the call.
  Lease keep(const Call& call, std::shared_ptr<CollectiveOperation> made,
             std::shared_ptr<Plan> plan);
  /// Counts a call whose operation is not kept.
  static Lease once(const Call& call, std::shared_ptr<Operation> made, Plan& plan);
  /// Of all calls that ran by this plan.
  Statistics::Calls calls_of(const Plan& plan) const;
  void clear();

 private:
  static constexpr std::size_t kSets = 16;
  static constexpr std::size_t kWays = 4;
  static constexpr std::size_t kTransfersMax = 64;
  static constexpr std::size_t kUntimedMax = 4096;  // bytes; their time starts when they wait
  static constexpr std::size_t kScratchBytesMax = std::size_t{64} << 10;
  using Set = std::array<Entry, kWays>;
  Lease renewed(Entry& entry, const Call& call, const Group& group);
  Entry* take_entry(Set& set);
  static void forget(Entry& entry);

  std::array<Set, kSets> sets_;
  std::size_t turn_ = 0;  // which entry to replace next if all are in use
  std::atomic<std::uint64_t> generation_{1};
};

}  // namespace farandole
