// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <utility>

#include "device/registry.hpp"
#include "engine/collective.hpp"
#include "farandole/farandole.hpp"
#include "frontend/call.hpp"
#include "frontend/delegates.hpp"
#include "frontend/device_call.hpp"
#include "frontend/operation_cache.hpp"
#include "frontend/plan.hpp"
#include "frontend/signature.hpp"
#include "reduce/reduce.hpp"
#include "transport/signature.hpp"

namespace farandole {
namespace {

using Lease = OperationCache::Lease;

/// Allocates the memory that a schedule needs beyond the caller's buffers.
Result<void> stage(const Call& call, const Plan& plan, const std::shared_ptr<Memory>& memory,
                   Count in_count, Count chunk, CollectiveSpec& spec) {
  const Arguments& arguments = call.arguments;
  const Bytes element = size_of(arguments.dtype);
  if (const auto slots = static_cast<std::size_t>(plan.program()->scratch_slots); slots > 0) {
    const Bytes each = chunk * element;
    auto scratch = allocate_shared(memory, Bytes{each.value() * slots});
    if (!scratch) return scratch.error();
    spec.scratch = *std::move(scratch);
  }
  if (spec.out == nullptr && plan.touches_out && arguments.collective == Collective::kReduce) {
    auto out = allocate_shared(memory, arguments.count * element);
    if (!out) return out.error();
    spec.staged_out = *std::move(out);
    spec.out = spec.staged_out.get();
  }
  const bool scales =
      reduces(arguments.collective) && arguments.reduction == Reduction::kPremultipliedSum;
  const bool aside = arguments.collective == Collective::kAlltoall && spec.in == spec.out;
  if ((!scales && !aside) || in_count.value() == 0) return {};
  auto copy = allocate_anywhere(memory, in_count * element);
  if (!copy) return copy.error();
  spec.staged_in = *std::move(copy);
  spec.before = LocalWork{.kind = scales ? LocalWork::Kind::kScale : LocalWork::Kind::kCopy,
                          .dtype = arguments.dtype,
                          .target = spec.staged_in.get(),
                          .left = spec.in,
                          .count = in_count,
                          .factor = call.options.factor};
  spec.in = spec.staged_in.get();
  return {};
}

// Work that a device has not finished cannot be forwarded piece by piece.
const FlowOf kNoFlow = [](int) { return Flow{}; };

/// The device that owns the memory of the call's buffers.
Result<std::shared_ptr<Device>> device_of(const Arguments& arguments, const Extent& extents) {
  const DeviceRegistry& devices = DeviceRegistry::instance();
  auto device = devices.owner(extents.in.value() > 0 ? arguments.in : arguments.out);
  if (extents.in.value() == 0 || extents.out.value() == 0) return device;
  const auto other = devices.owner(arguments.out);
  if (other == device) return device;
  return bad_argument(name(arguments.collective), "out",
                      "memory of device '" + std::string(other->name()) + "'",
                      "memory of device '" + std::string(device->name()) + "', where 'in' lies");
}

/// The plan's program, bound to calls of this shape.
Result<std::shared_ptr<const BoundProgram>> bound_to(const Call& call, Plan& plan, Layouts layout,
                                                     std::optional<std::int64_t> offset,
                                                     const Device& device,
                                                     CommunicatorState& state) {
  const Arguments& arguments = call.arguments;
  const auto is_alike = [&](const Plan::Bound& one) {
    return one.dtype == arguments.dtype && one.count == arguments.count &&
           one.in_offset == offset && one.works_at_once == device.works_at_once();
  };
  if (!arguments.by_rank) {
    const std::lock_guard lock(state.plans_mutex);
    const auto found = std::ranges::find_if(plan.bound, is_alike);
    if (found != plan.bound.end()) return found->program;
  }
  auto bound = BoundProgram::bind({plan.program(), std::move(layout.in), std::move(layout.out),
                                   std::move(layout.chunks), arguments.dtype, offset},
                                  device.works_at_once() ? flow_of(state.group) : kNoFlow);
  if (!bound || arguments.by_rank) return bound;
  const std::lock_guard lock(state.plans_mutex);
  if (plan.bound.size() == Plan::kBoundMax) plan.bound.pop_front();
  plan.bound.push_back({arguments.dtype, arguments.count, offset, device.works_at_once(), *bound});
  return bound;
}

Result<CollectiveSpec> make_spec(const Call& call, Plan& plan, CommunicatorState& state,
                                 std::shared_ptr<Device> device) {
  const Arguments& arguments = call.arguments;
  CollectiveSpec spec;
  spec.device = std::move(device);
  if (reduces(arguments.collective)) {
    auto kernel = find_kernel(arguments.dtype, arguments.reduction);
    if (!kernel) return kernel.error();
    spec.kernel = *kernel;
  }
  const Extent extents = extent(arguments, *state.group);
  Layouts layout = layouts(arguments, *state.group, plan.program()->chunk_count);
  spec.in = static_cast<const std::byte*>(arguments.in);
  spec.out = static_cast<std::byte*>(arguments.out);
  spec.out_count = extents.out;
  if (reduces(arguments.collective) && arguments.reduction == Reduction::kAverage) {
    spec.divisor = static_cast<std::size_t>(state.group->size());
  }
  const Bytes element = size_of(arguments.dtype);
  const Count chunk = layout.chunks.chunk_elements_max();
  if (auto staged = stage(call, plan, state.context->fabric.memory, extents.in, chunk, spec);
      !staged) {
    return staged.error();
  }
  const auto offset = in_offset(spec.in, extents.in * element, spec.out, extents.written * element);
  auto bound = bound_to(call, plan, std::move(layout), offset, *spec.device, state);
  if (!bound) return bound.error();
  spec.bound = *std::move(bound);
  spec.signature = signature_of(call, plan);
  spec.terms = terms_of(state, call.options.name, call.options.gate);
  return spec;
}

/// An average of integers is summed in wider integers, in memory of the library.
bool widens(const Arguments& arguments, const Group& group) {
  return reduces(arguments.collective) && arguments.reduction == Reduction::kAverage &&
         wide_length(arguments.dtype) > 0 && group.size() > 1;
}

Result<CollectiveSpec> make_wide_spec(const Call& call, CommunicatorState& state,
                                      std::shared_ptr<Device> device, std::shared_ptr<Plan>& plan) {
  const Arguments& narrow = call.arguments;
  const Extent extents = extent(narrow, *state.group);
  const auto divisor = static_cast<std::size_t>(state.group->size());
  const std::size_t length = wide_length(narrow.dtype);
  const auto wide = [&](Count count) { return Count{count.value() * length}; };
  const Bytes element = size_of(DType::kInt64);
  auto sums =
      allocate_anywhere(state.context->fabric.memory, wide(extents.in + Count{1}) * element);
  if (!sums) return sums.error();
  std::vector<std::size_t> counts;
  for (const std::size_t count : narrow.in_counts) counts.push_back(count * length);
  Arguments sum = narrow;
  sum.in = sums->get();
  sum.out = sums->get() + (wide(extents.in_place_offset) * element).value();
  sum.count = wide(narrow.count);
  sum.dtype = DType::kInt64;
  sum.reduction = Reduction::kSum;
  sum.in_counts = counts;
  const Call summing{sum, call.options};
  auto found = find_plan(summing, state, device->name(), PlanTable::Kind::kSchedule);
  if (!found) return found.error();
  plan = *std::move(found);
  auto spec = make_spec(summing, *plan, state, std::move(device));
  if (!spec) return spec;
  spec->staged_in = *std::move(sums);
  spec->before = LocalWork{.kind = LocalWork::Kind::kWiden,
                           .dtype = narrow.dtype,
                           .target = spec->staged_in.get(),
                           .left = static_cast<const std::byte*>(narrow.in),
                           .count = extents.in,
                           .divisor = divisor};
  spec->after = LocalWork{.kind = LocalWork::Kind::kNarrow,
                          .dtype = narrow.dtype,
                          .target = static_cast<std::byte*>(narrow.out),
                          .left = spec->out,
                          .count = narrow.out == nullptr ? Count{0} : extents.out,
                          .divisor = divisor};
  spec->signature = signature_of(call, *plan);
  return spec;
}

Result<void> make_operation(const Call& call, CommunicatorState& state, Lease& made) {
  if (auto valid = check_call(call, *state.group); !valid) return valid;
  auto device = device_of(call.arguments, extent(call.arguments, *state.group));
  if (!device) return device.error();
  std::shared_ptr<Plan> plan;
  const bool wide = widens(call.arguments, *state.group);
  if (!wide) {
    auto found = find_plan(call, state, (*device)->name());
    if (!found) return found.error();
    plan = *std::move(found);
    if (plan->program() == nullptr) {
      const std::lock_guard lock(state.plans_mutex);
      made = OperationCache::once(call, make_delegate_operation(call, *plan, state), *plan);
      return {};
    }
  }
  auto spec = wide ? make_wide_spec(call, state, *std::move(device), plan)
                   : make_spec(call, *plan, state, *std::move(device));
  if (!spec) return spec.error();
  auto operation = std::make_shared<CollectiveOperation>(*std::move(spec));
  const std::lock_guard lock(state.plans_mutex);
  made = state.operations.keep(call, std::move(operation), std::move(plan));
  return {};
}

/// Gives the operation the communicator's next sequence number.
void number(Operation& operation, CommunicatorState& state) {
  operation.set_id({state.group->communicator, state.next_sequence.fetch_add(1)});
}

/// FARANDOLE_CHECK: compares what the ranks are about to do. Any difference is an error on all
/// ranks, before a byte of the operation has moved.
Result<void> compare_across_ranks(const Operation& operation, CommunicatorState& state) {
  const Signature mine = operation.signature();
  Writer own;
  write(own, mine);
  std::string told(static_cast<std::size_t>(state.group->size()) * kSignatureBytes, '\0');
  const CallOptions options{
      .algorithm = "ring", .name = "argument check", .purpose = kArgumentCheck};
  const Arguments arguments{.collective = Collective::kAllgather,
                            .in = own.bytes().data(),
                            .out = told.data(),
                            .count = Count{kSignatureBytes}};
  const Call call{arguments, options};
  Lease comparing = state.operations.find(call, *state.group);
  if (!comparing) {
    if (auto made = make_operation(call, state, comparing); !made) return made;
  }
  number(*comparing, state);
  if (auto shown = state.context->fabric.engine->run(*comparing); !shown) return shown;
  Reader reader(told);
  const Signature first = read_signature(reader);
  bool equal = true;
  std::string text = "rank 0: " + describe(first);
  for (int rank = 1; rank < state.group->size(); ++rank) {
    const Signature other = read_signature(reader);
    equal &= other == first;
    text += ", rank " + std::to_string(rank) + ": " + describe(other);
  }
  if (equal) return {};
  const std::string& called = operation.terms().name;
  const std::string named = called.empty() ? "" : " '" + called + "'";
  return Error{ErrorKind::kMismatch,
               "ranks disagree on " + std::string(name(static_cast<Collective>(mine.collective))) +
                   named + ": " + text};
}

/// Checks a call, then makes and numbers its operation, ready for the engine. Empty on failure;
/// `outcome` is the error then. Not a Result, since a small call takes only a few dozen
/// instructions.
Lease prepare(const Call& call, CommunicatorState& state, Result<void>& outcome) {
  if (!is_open(state)) {
    outcome = closed_error(state, name(call.arguments.collective));
    return Lease();
  }
  Lease operation = state.operations.find(call, *state.group);
  if (!operation) outcome = make_operation(call, state, operation);
  // Not the caller's mistake, so the other ranks number this call: it gets a number here as well.
  if (!outcome && outcome.error().kind != ErrorKind::kInvalidArgument) {
    state.context->fabric.engine->excuse(*state.group, state.next_sequence.fetch_add(1),
                                         outcome.error());
  }
  if (operation && state.context->environment.check)
    outcome = compare_across_ranks(*operation, state);
  if (!outcome) return Lease();
  number(*operation, state);
  return operation;
}

/// The device on whose streams the call goes; null for memory of the host, and if `outcome` is an
/// error.
std::shared_ptr<StreamDevice> device_that_orders(const Call& call, const CommunicatorState& state,
                                                 Result<void>& outcome) {
  if (!DeviceRegistry::any_streams() || !check_call(call, *state.group)) return nullptr;
  auto device = stream_device_of(call, *state.group);
  if (device) return *std::move(device);
  outcome = std::move(device).error();
  return nullptr;
}

}  // namespace

Rank Communicator::rank() const {
  return state_->group->self;
}
int Communicator::size() const {
  return state_->group->size();
}
const std::vector<Rank>& Communicator::world_ranks() const {
  return state_->group->world_ranks;
}

Result<Request> Communicator::start(const Arguments& arguments, const CallOptions& options) {
  Result<void> outcome;
  if (auto device = device_that_orders({arguments, options}, *state_, outcome)) {
    auto run = start_on_device({arguments, options}, state_, device, false);
    if (!run) return run.error();
    return Request(*std::move(run));
  }
  if (!outcome) return std::move(outcome).error();
  const Lease operation = prepare({arguments, options}, *state_, outcome);
  if (!operation) return std::move(outcome).error();
  state_->context->fabric.engine->submit(operation.shared(), options.background);
  return Request(operation.shared(), state_->context);
}

Result<void> Communicator::run(const Arguments& arguments, const CallOptions& options) {
  Result<void> outcome;
  if (auto device = device_that_orders({arguments, options}, *state_, outcome)) {
    auto run = start_on_device({arguments, options}, state_, device, true);
    return run ? Result<void>() : run.error();
  }
  if (!outcome) return outcome;
  const Lease operation = prepare({arguments, options}, *state_, outcome);
  if (!operation) return outcome;
  return state_->context->fabric.engine->run(*operation);
}

Result<Request> Communicator::start(Collective collective, const void* in, void* out, Count count,
                                    DType dtype, Reduction reduction, Rank root,
                                    const CallOptions& options) {
  return start(Arguments{collective, in, out, count, dtype, reduction, root}, options);
}
Result<void> Communicator::run(Collective collective, const void* in, void* out, Count count,
                               DType dtype, Reduction reduction, Rank root,
                               const CallOptions& options) {
  return run(Arguments{collective, in, out, count, dtype, reduction, root}, options);
}

Result<void> Communicator::allreduce(const void* in, void* out, Count count, DType dtype,
                                     Reduction reduction, const CallOptions& options) {
  return run(Collective::kAllreduce, in, out, count, dtype, reduction, Rank{0}, options);
}
Result<void> Communicator::reduce(const void* in, void* out, Count count, DType dtype, Rank root,
                                  Reduction reduction, const CallOptions& options) {
  return run(Collective::kReduce, in, out, count, dtype, reduction, root, options);
}
Result<void> Communicator::reducescatter(const void* in, void* out, Count count, DType dtype,
                                         Reduction reduction, const CallOptions& options) {
  return run(Collective::kReducescatter, in, out, count, dtype, reduction, Rank{0}, options);
}
Result<void> Communicator::allgather(const void* in, void* out, Count count, DType dtype,
                                     const CallOptions& options) {
  return run(Collective::kAllgather, in, out, count, dtype, Reduction::kSum, Rank{0}, options);
}
Result<void> Communicator::gather(const void* in, void* out, Count count, DType dtype, Rank root,
                                  const CallOptions& options) {
  return run(Collective::kGather, in, out, count, dtype, Reduction::kSum, root, options);
}
Result<void> Communicator::scatter(const void* in, void* out, Count count, DType dtype, Rank root,
                                   const CallOptions& options) {
  return run(Collective::kScatter, in, out, count, dtype, Reduction::kSum, root, options);
}
Result<void> Communicator::alltoall(const void* in, void* out, Count count, DType dtype,
                                    const CallOptions& options) {
  return run(Collective::kAlltoall, in, out, count, dtype, Reduction::kSum, Rank{0}, options);
}
Result<void> Communicator::broadcast(const void* in, void* out, Count count, DType dtype, Rank root,
                                     const CallOptions& options) {
  return run(Collective::kBroadcast, in, out, count, dtype, Reduction::kSum, root, options);
}
Result<void> Communicator::barrier(const CallOptions& options) {
  return run(Arguments{}, options);
}

}  // namespace farandole
