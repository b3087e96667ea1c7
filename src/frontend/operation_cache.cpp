// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "frontend/operation_cache.hpp"

#include <algorithm>
#include <utility>

#include "base/owned_sum.hpp"
#include "base/ticks.hpp"
#include "device/registry.hpp"
#include "frontend/call.hpp"

namespace farandole {

namespace {

std::size_t hash(const Arguments& arguments) {
  const auto small = static_cast<std::size_t>(arguments.collective) << 24 |
                     static_cast<std::size_t>(arguments.dtype) << 16 |
                     static_cast<std::size_t>(arguments.reduction) << 8 |
                     static_cast<std::size_t>(arguments.in == arguments.out);
  const auto root = static_cast<std::size_t>(arguments.root.value()) << 32;
  return ((arguments.count.value() * 31 + small + root) * 0x9e3779b97f4a7c15) >> 32;
}

/// Offset of `in` from `out`, if they share memory.
std::optional<std::int64_t> in_offset(const Arguments& arguments, const Extent& extents) {
  const Bytes element = size_of(arguments.dtype);
  return in_offset(arguments.in, extents.in * element, arguments.out, extents.written * element);
}

/// Whether two calls differ at most in their addresses, and overlap alike. Both or neither must
/// have an output: on a rank that is not the root of a reduce, the library allocates a missing one.
bool alike(const Arguments& a, const Arguments& b, const Extent& extents) {
  if (a.count != b.count || a.collective != b.collective || a.dtype != b.dtype ||
      a.reduction != b.reduction || a.root != b.root) {
    return false;
  }
  if (a.in == b.in && a.out == b.out) return true;
  return (a.out == nullptr) == (b.out == nullptr) && in_offset(a, extents) == in_offset(b, extents);
}

/// Whether the operation has succeeded and nothing else holds it any more.
bool is_free(const std::shared_ptr<CollectiveOperation>& operation) {
  if (operation.use_count() > 1) return false;
  // Releasing a copy orders what other threads did with their copies before what the caller does
  // now.
  if (operation->handed_over) (void)std::shared_ptr(operation);
  return operation->finished() && operation->outcome();
}

/// Counts the call. Returns the bytes of its larger buffer on this rank.
std::size_t count_call(const Arguments& arguments, const Extent& extents, Plan& plan) {
  const std::size_t bytes = (std::max(extents.in, extents.out) * size_of(arguments.dtype)).value();
  add_owned(plan.calls, 1);
  add_owned(plan.bytes, bytes);
  return bytes;
}

}  // namespace

OperationCache::Lease OperationCache::find(const Call& call, const Group& group) {
  if (call.arguments.by_rank) return Lease();
  const std::size_t hashed = hash(call.arguments);
  for (Entry& entry : sets_[hashed % kSets]) {
    if (entry.hash.load(std::memory_order_relaxed) != hashed) continue;
    if (entry.taken.exchange(true, std::memory_order_acquire)) continue;
    if (Lease lease = renewed(entry, call, group)) return lease;
  }
  return Lease();
}

/// The caller has taken the entry; it is released if its operation does not suit the call.
OperationCache::Lease OperationCache::renewed(Entry& entry, const Call& call, const Group& group) {
  const auto& [arguments, options] = call;
  Lease lease(entry);
  if (entry.generation != generation_.load(std::memory_order_relaxed) ||
      !alike(entry.arguments, arguments, entry.extents) || entry.size_shift != options.size_shift ||
      entry.deterministic != options.deterministic || entry.purpose != options.purpose ||
      entry.algorithm != options.algorithm || !is_free(entry.operation) ||
      !DeviceRegistry::owns_alike(entry.arguments.in, arguments.in) ||
      !DeviceRegistry::owns_alike(entry.arguments.out, arguments.out)) {
    return Lease();
  }
  if (entry.arguments.in != arguments.in || entry.arguments.out != arguments.out) {
    if (!check_buffers(arguments, entry.extents, group)) return Lease();
    entry.arguments.in = arguments.in;
    entry.arguments.out = arguments.out;
  }
  add_owned(entry.calls, 1);
  const std::uint64_t now = entry.bytes <= kUntimedMax ? 0 : Ticks::now();
  entry.operation->renew(arguments.in, arguments.out, options.name, now, options.gate);
  return lease;
}

OperationCache::Lease OperationCache::once(const Call& call, std::shared_ptr<Operation> made,
                                           Plan& plan) {
  count_call(call.arguments, extent(call.arguments, made->group()), plan);
  return Lease(std::move(made));
}

OperationCache::Lease OperationCache::keep(const Call& call,
                                           std::shared_ptr<CollectiveOperation> made,
                                           std::shared_ptr<Plan> plan) {
  const Arguments& arguments = call.arguments;
  const Extent extents = extent(arguments, made->group());
  const std::size_t bytes = count_call(arguments, extents, *plan);
  const CollectiveSpec& spec = made->spec();
  const auto slots = static_cast<std::size_t>(spec.bound->program().scratch_slots);
  const std::size_t slot_bytes =
      (spec.bound->binding().chunks.chunk_elements_max() * size_of(arguments.dtype)).value();
  const bool staged = spec.staged_in != nullptr || spec.staged_out != nullptr;
  if (arguments.by_rank || staged || spec.bound->program().actions_per_round_max > kTransfersMax ||
      (slots > 0 && slot_bytes > kScratchBytesMax / slots)) {
    return Lease(std::move(made));
  }
  const std::size_t hashed = hash(arguments);
  Entry* const taken = take_entry(sets_[hashed % kSets]);
  if (taken == nullptr) return Lease(std::move(made));
  Entry& entry = *taken;
  forget(entry);
  entry.hash.store(hashed, std::memory_order_relaxed);
  entry.generation = generation_.load(std::memory_order_relaxed);
  entry.arguments = arguments;
  entry.size_shift = call.options.size_shift;
  entry.deterministic = call.options.deterministic;
  entry.purpose = call.options.purpose;
  entry.algorithm = call.options.algorithm;
  entry.extents = extents;
  entry.operation = std::move(made);
  entry.bytes = bytes;
  entry.plan = std::move(plan);
  return Lease(entry);
}

/// Takes an entry that is empty or outdated, else the one whose turn it is; null if all are taken.
OperationCache::Entry* OperationCache::take_entry(Set& set) {
  const std::uint64_t now = generation_.load(std::memory_order_relaxed);
  for (Entry& entry : set) {
    if (entry.taken.exchange(true, std::memory_order_acquire)) continue;
    if (entry.generation != now || entry.operation == nullptr) return &entry;
    entry.taken.store(false, std::memory_order_release);
  }
  for (std::size_t i = 0; i < kWays; ++i) {
    Entry& entry = set[turn_++ % kWays];
    if (!entry.taken.exchange(true, std::memory_order_acquire)) return &entry;
  }
  return nullptr;
}

Statistics::Calls OperationCache::calls_of(const Plan& plan) const {
  Statistics::Calls all{.calls = plan.calls.load(), .bytes = plan.bytes.load()};
  for (const Set& set : sets_) {
    for (const Entry& entry : set) {
      if (entry.plan.get() != &plan) continue;
      const std::uint64_t calls = entry.calls.load();
      all.calls += calls;
      all.bytes += calls * entry.bytes;
    }
  }
  return all;
}

/// The caller has taken the entry.
void OperationCache::forget(Entry& entry) {
  entry.generation = 0;
  entry.hash.store(0, std::memory_order_relaxed);
  entry.operation.reset();
  if (entry.plan == nullptr) return;
  const std::uint64_t calls = entry.calls.exchange(0);
  add_owned(entry.plan->calls, calls);
  add_owned(entry.plan->bytes, calls * entry.bytes);
  entry.plan.reset();
}

void OperationCache::clear() {
  generation_.fetch_add(1, std::memory_order_relaxed);
  for (Set& set : sets_) {
    for (Entry& entry : set) {
      if (entry.taken.exchange(true, std::memory_order_acquire)) continue;  // outdated from now on
      forget(entry);
      entry.taken.store(false, std::memory_order_release);
    }
  }
}

}  // namespace farandole
