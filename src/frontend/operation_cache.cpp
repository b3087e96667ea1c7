// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "frontend/operation_cache.hpp"

#include <algorithm>
#include <utility>

#include "base/owned_sum.hpp"
#include "frontend/call.hpp"

namespace farandole {
namespace {

/// Under the communicator's lock.
void count(Plan& plan, std::size_t bytes) {
  add_owned(plan.calls, 1);
  add_owned(plan.bytes, bytes);
}

bool is_in_place(const Arguments& arguments) {
  return arguments.in == arguments.out;
}

}  // namespace

bool OperationCache::is_of(const Slot& slot, const Call& call) {
  const Arguments& arguments = call.arguments;
  const CallOptions& options = call.options;
  return slot.count == arguments.count && slot.collective == arguments.collective &&
         slot.dtype == arguments.dtype && slot.reduction == arguments.reduction &&
         slot.root == arguments.root && slot.in_place == is_in_place(arguments) &&
         slot.deterministic == options.deterministic && slot.size_shift == options.size_shift &&
         slot.algorithm == options.algorithm;
}

std::size_t OperationCache::index_of(const Call& call) {
  const Arguments& arguments = call.arguments;
  std::size_t hash = arguments.count.value();
  for (const auto part :
       {static_cast<std::size_t>(arguments.collective), static_cast<std::size_t>(arguments.dtype),
        static_cast<std::size_t>(arguments.reduction),
        static_cast<std::size_t>(arguments.root.value()),
        static_cast<std::size_t>(is_in_place(arguments))}) {
    hash = hash * 31 + part;
  }
  return (hash * 0x9e3779b97f4a7c15 >> 32) % kEntries;
}

std::shared_ptr<CollectiveOperation> OperationCache::find(const Call& call) {
  if (call.arguments.by_rank) return nullptr;
  Slot& slot = slots_[index_of(call)];
  if (!slot.operation || !is_of(slot, call) || slot.operation.use_count() > 1) return nullptr;
  if (!slot.operation->finished() || !slot.operation->outcome()) return nullptr;
  // Giving up a copy orders what other threads did with theirs before what the caller does now.
  (void)std::shared_ptr(slot.operation);
  count(*slot.plan, slot.bytes);
  return slot.operation;
}

void OperationCache::keep(const Call& call, std::shared_ptr<CollectiveOperation> made,
                          std::shared_ptr<Plan> plan) {
  const Arguments& arguments = call.arguments;
  const CallOptions& options = call.options;
  const Extent extents = extent(arguments, made->group());
  const std::size_t bytes = (std::max(extents.in, extents.out) * size_of(arguments.dtype)).value();
  count(*plan, bytes);
  const CollectiveSpec& spec = made->spec();
  const auto slots = static_cast<std::size_t>(spec.program->scratch_slots);
  const std::size_t slot_bytes =
      (spec.chunks.chunk_elements_max() * size_of(arguments.dtype)).value();
  const bool staged = spec.staged_in != nullptr || spec.staged_out != nullptr;
  if (arguments.by_rank || staged || spec.program->actions_per_round_max > kTransfersMax ||
      (slots > 0 && slot_bytes > kScratchBytesMax / slots)) {
    return;
  }
  slots_[index_of(call)] = Slot{.collective = arguments.collective,
                                .count = arguments.count,
                                .dtype = arguments.dtype,
                                .reduction = arguments.reduction,
                                .root = arguments.root,
                                .in_place = is_in_place(arguments),
                                .deterministic = options.deterministic,
                                .size_shift = options.size_shift,
                                .algorithm = options.algorithm,
                                .bytes = bytes,
                                .operation = std::move(made),
                                .plan = std::move(plan)};
}

}  // namespace farandole
