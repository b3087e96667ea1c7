// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "frontend/operation_cache.hpp"

#include <algorithm>
#include <utility>

#include "base/owned_sum.hpp"
#include "base/ticks.hpp"
#include "frontend/call.hpp"

namespace farandole {

OperationCache::Key OperationCache::key_of(const Call& call) {
  const Arguments& arguments = call.arguments;
  return {.count = arguments.count,
          .root = arguments.root,
          .size_shift = call.options.size_shift,
          .collective = arguments.collective,
          .dtype = arguments.dtype,
          .reduction = arguments.reduction,
          .in_place = arguments.in == arguments.out,
          .deterministic = call.options.deterministic};
}

std::size_t OperationCache::index_of(const Key& key) {
  const auto small =
      static_cast<std::size_t>(key.collective) << 24 | static_cast<std::size_t>(key.dtype) << 16 |
      static_cast<std::size_t>(key.reduction) << 8 | static_cast<std::size_t>(key.in_place);
  const auto root = static_cast<std::size_t>(key.root.value()) << 32;
  const std::size_t hash = (key.count.value() * 31 + small + root) * 0x9e3779b97f4a7c15;
  return (hash >> 32) % kEntries;
}

/// Whether it ended well and nobody else holds it any more.
bool OperationCache::is_free(const std::shared_ptr<CollectiveOperation>& operation) {
  if (operation.use_count() > 1) return false;
  // Giving up a copy orders what other threads did with theirs before what the caller does now.
  if (operation->handed_over) (void)std::shared_ptr(operation);
  return operation->finished() && operation->outcome();
}

OperationCache::Lease OperationCache::find(const Call& call) {
  if (call.arguments.by_rank) return Lease();
  const Key key = key_of(call);
  Slot& slot = slots_[index_of(key)];
  if (slot.taken.exchange(true, std::memory_order_acquire)) return Lease();
  if (slot.generation == generation_.load(std::memory_order_relaxed) && slot.key == key &&
      slot.algorithm == call.options.algorithm && is_free(slot.operation)) {
    return Lease(slot);
  }
  slot.taken.store(false, std::memory_order_release);
  return Lease();
}

void OperationCache::Lease::renew(const Call& call) const {
  add_owned(slot_->calls, 1);
  const std::uint64_t now = slot_->bytes <= kUntimedMax ? 0 : Ticks::now();
  slot_->operation->renew(call.arguments.in, call.arguments.out, call.options.name, now);
}

OperationCache::Lease OperationCache::keep(const Call& call,
                                           std::shared_ptr<CollectiveOperation> made,
                                           std::shared_ptr<Plan> plan) {
  const Arguments& arguments = call.arguments;
  const Extent extents = extent(arguments, made->group());
  const std::size_t bytes = (std::max(extents.in, extents.out) * size_of(arguments.dtype)).value();
  add_owned(plan->calls, 1);
  add_owned(plan->bytes, bytes);
  const CollectiveSpec& spec = made->spec();
  const auto slots = static_cast<std::size_t>(spec.program->scratch_slots);
  const std::size_t slot_bytes =
      (spec.chunks.chunk_elements_max() * size_of(arguments.dtype)).value();
  const bool staged = spec.staged_in != nullptr || spec.staged_out != nullptr;
  const Key key = key_of(call);
  Slot& slot = slots_[index_of(key)];
  if (arguments.by_rank || staged || spec.program->actions_per_round_max > kTransfersMax ||
      (slots > 0 && slot_bytes > kScratchBytesMax / slots) ||
      slot.taken.exchange(true, std::memory_order_acquire)) {
    return Lease(std::move(made));
  }
  forget(slot);
  slot.generation = generation_.load(std::memory_order_relaxed);
  slot.key = key;
  slot.algorithm = call.options.algorithm;
  slot.extents = extents;
  slot.operation = std::move(made);
  slot.bytes = bytes;
  slot.plan = std::move(plan);
  return Lease(slot);
}

Statistics::Calls OperationCache::calls_of(const Plan& plan) const {
  Statistics::Calls all{.calls = plan.calls.load(), .bytes = plan.bytes.load()};
  for (const Slot& slot : slots_) {
    if (slot.plan.get() != &plan) continue;
    const std::uint64_t calls = slot.calls.load();
    all.calls += calls;
    all.bytes += calls * slot.bytes;
  }
  return all;
}

/// The caller has taken the slot.
void OperationCache::forget(Slot& slot) {
  slot.generation = 0;
  slot.operation.reset();
  if (slot.plan == nullptr) return;
  const std::uint64_t calls = slot.calls.exchange(0);
  add_owned(slot.plan->calls, calls);
  add_owned(slot.plan->bytes, calls * slot.bytes);
  slot.plan.reset();
}

void OperationCache::clear() {
  generation_.fetch_add(1, std::memory_order_relaxed);
  for (Slot& slot : slots_) {
    if (slot.taken.exchange(true, std::memory_order_acquire)) continue;  // old from now on
    forget(slot);
    slot.taken.store(false, std::memory_order_release);
  }
}

}  // namespace farandole
