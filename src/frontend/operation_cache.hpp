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

/// Collectives that ended, to run again for calls like the ones that made them: most of what a
/// small collective costs is choosing its plan and making its operation.
///
/// Threads   find() from any; the rest under the communicator's lock.
/// Memory    kEntries operations, each of at most kTransfersMax transfers a round and
///           kScratchBytesMax of scratch.
class OperationCache {
  struct Slot;

 public:
  /// An operation that is the holder's until it is submitted, and nobody else's to find until the
  /// lease ends.
  class Lease {
   public:
    Lease() = default;
    Lease(Lease&& other) noexcept
        : slot_(std::exchange(other.slot_, nullptr)), made_(std::move(other.made_)) {}
    Lease& operator=(Lease&& other) noexcept {
      std::swap(slot_, other.slot_);
      std::swap(made_, other.made_);
      return *this;
    }
    ~Lease() {
      if (slot_ != nullptr) slot_->taken.store(false, std::memory_order_release);
    }
    explicit operator bool() const { return slot_ != nullptr || made_ != nullptr; }
    CollectiveOperation& operator*() const { return *shared(); }
    CollectiveOperation* operator->() const { return shared().get(); }
    /// Of the call that made it. Of an operation that was found, as the next.
    const Extent& extents() const { return slot_->extents; }
    /// Ready to run once more, for a call whose buffers are right. Counts the call.
    void renew(const Call& call) const;
    const std::shared_ptr<CollectiveOperation>& shared() const {
      return slot_ != nullptr ? slot_->operation : made_;
    }

   private:
    friend class OperationCache;
    explicit Lease(Slot& slot) : slot_(&slot) {}
    explicit Lease(std::shared_ptr<CollectiveOperation> made) : made_(std::move(made)) {}
    Slot* slot_ = nullptr;
    std::shared_ptr<CollectiveOperation> made_;  // in no slot
  };

  /// The operation of an equal call, if it ended well and nobody else holds it any more; else none.
  Lease find(const Call& call);
  /// Remembers what a call made, if it can be run again, and counts the call.
  Lease keep(const Call& call, std::shared_ptr<CollectiveOperation> made,
             std::shared_ptr<Plan> plan);
  /// Of all calls that ran by this plan.
  Statistics::Calls calls_of(const Plan& plan) const;
  void clear();

 private:
  static constexpr std::size_t kEntries = 32;
  static constexpr std::size_t kTransfersMax = 64;
  static constexpr std::size_t kUntimedMax = 4096;  // bytes; their time begins when they wait
  static constexpr std::size_t kScratchBytesMax = std::size_t{64} << 10;
  /// Of a call; its buffers only tell whether it was in place.
  struct Key {
    Count count;
    Rank root{0};
    int size_shift = 0;
    Collective collective{};
    DType dtype{};
    Reduction reduction{};
    bool in_place = false, deterministic = false;
    bool operator==(const Key&) const = default;
  };
  struct Slot {
    std::atomic<bool> taken{false};
    // The taker's.
    std::uint64_t generation = 0;  // of the cache when this was kept; another one: empty
    Key key;
    std::string algorithm;
    Extent extents;
    std::shared_ptr<CollectiveOperation> operation;
    std::atomic<std::uint64_t> calls{0};  // found here, which the plan has not counted
    // Written by the taker under the communicator's lock, read with either.
    std::size_t bytes = 0;  // of the call's larger buffer on this rank
    std::shared_ptr<Plan> plan;
  };
  static Key key_of(const Call& call);
  static std::size_t index_of(const Key& key);
  static bool is_free(const std::shared_ptr<CollectiveOperation>& operation);
  static void forget(Slot& slot);

  std::array<Slot, kEntries> slots_;
  std::atomic<std::uint64_t> generation_{1};
};

}  // namespace farandole
