// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <cstdint>
#include <cstring>
#include <utility>

#include "algorithms/registry.hpp"
#include "farandole/farandole.hpp"
#include "frontend/context_state.hpp"
#include "planner/choose.hpp"
#include "reduce/reduce.hpp"
#include "schedule/layout.hpp"

namespace farandole {
namespace {

/// One call as the user made it.
struct Call {
  Collective collective;
  const std::byte* in;
  std::byte* out;
  Count count;
  DType dtype;
  Reduction reduction;
  Rank root;
  const CallOptions& options;
};

Error bad_argument(const Call& call, const std::string& argument, const std::string& given,
                   const std::string& allowed) {
  return Error{ErrorKind::kInvalidArgument, std::string(name(call.collective)) + ": argument '" +
                                                argument + "' is " + given + ", allowed is " +
                                                allowed + "."};
}

/// Elements of `in` and `out` on this rank.
Count in_count(const Call& call, std::size_t size) {
  return Count{call.collective == Collective::kReducescatter ? call.count.value() * size
                                                             : call.count.value()};
}
Count out_count(const Call& call, std::size_t size) {
  return Count{call.collective == Collective::kAllgather ? call.count.value() * size
                                                         : call.count.value()};
}

/// In place, as the collective defines it, or apart; anything between is a mistake.
Result<void> check_overlap(const Call& call, const CommunicatorState& state) {
  const auto size = static_cast<std::size_t>(state.group->size());
  const std::size_t element = size_of(call.dtype).value();
  const std::size_t in_bytes = in_count(call, size).value() * element;
  const std::size_t out_bytes = out_count(call, size).value() * element;
  const auto in = reinterpret_cast<std::uintptr_t>(call.in);
  const auto out = reinterpret_cast<std::uintptr_t>(call.out);
  if (in_bytes == 0 || out_bytes == 0 || in + in_bytes <= out || out + out_bytes <= in) return {};
  const std::size_t mine =
      static_cast<std::size_t>(state.group->self.value()) * call.count.value() * element;
  const bool in_place = call.collective == Collective::kReducescatter ? out == in + mine
                        : call.collective == Collective::kAllgather   ? in == out + mine
                                                                      : in == out;
  if (in_place) return {};
  return bad_argument(call, "out", "overlapping 'in' partly",
                      "memory apart from 'in' or exactly its in-place position");
}

Result<void> check_call(const Call& call, const CommunicatorState& state) {
  if (call.collective == Collective::kBarrier) return {};
  const int size = state.group->size();
  if (call.root.value() < 0 || call.root.value() >= size) {
    return bad_argument(call, "root", std::to_string(call.root.value()),
                        "a rank from 0 to " + std::to_string(size - 1));
  }
  constexpr std::size_t kCountMax = std::size_t{1} << 46;
  if (call.count.value() > kCountMax / static_cast<std::size_t>(size)) {
    return bad_argument(call, "count", std::to_string(call.count.value()),
                        "at most 2^46 elements over all ranks");
  }
  if (call.count.value() == 0) return {};
  const bool reads = call.collective != Collective::kBroadcast || call.root == state.group->self;
  if (reads && call.in == nullptr) return bad_argument(call, "in", "null", "a buffer");
  if (call.out == nullptr) return bad_argument(call, "out", "null", "a buffer");
  return reads ? check_overlap(call, state) : Result<void>();
}

std::string choose(const Call& call, const CommunicatorState& state) {
  if (!call.options.algorithm.empty() && call.options.algorithm != "auto") {
    return call.options.algorithm;
  }
  if (!state.context->algorithm.empty()) {
    if (find_algorithm(call.collective, state.context->algorithm)) return state.context->algorithm;
  }
  const auto size = static_cast<std::size_t>(state.group->size());
  const Count larger = std::max(in_count(call, size), out_count(call, size));
  return std::string(choose_algorithm(
      {call.collective, larger * size_of(call.dtype), state.group->size(), state.peer_memory}));
}

/// Builds, proves, specializes and connects, once per algorithm and root.
Result<std::shared_ptr<Plan>> make_plan(const Call& call, const std::string& algorithm,
                                        const CommunicatorState& state) {
  auto info = find_algorithm(call.collective, algorithm);
  if (!info) return info.error();
  const Group& group = *state.group;
  const std::int64_t root = call.collective == Collective::kBroadcast ? call.root.value() : 0;
  auto verified = verify((*info)->build({.rank_count = group.size(), .root = root}));
  if (!verified) return verified.error();
  auto plan = std::make_shared<Plan>();
  plan->program = std::make_shared<const Program>(specialize(*verified, group.self.value()));
  const auto table = algorithms();
  while (table[plan->algorithm] != *info) ++plan->algorithm;
  std::map<Transport*, std::vector<Rank>> peers;
  for (const std::int64_t peer : plan->program->peers) {
    const auto index = static_cast<std::size_t>(peer);
    peers[group.transports[index]].push_back(group.world_ranks[index]);
  }
  plan->label = std::string(name(call.collective)) + " " + algorithm;
  for (auto& [transport, ranks] : peers) {
    auto connected = transport->connect(ranks, Deadline::after(state.context->job.start_timeout));
    if (!connected) return connected.error();
    plan->label += " " + std::string(transport->capabilities().name);
  }
  return plan;
}

Result<std::shared_ptr<Plan>> find_plan(const Call& call, CommunicatorState& state) {
  const std::string algorithm = choose(call, state);
  const std::int64_t root = call.collective == Collective::kBroadcast ? call.root.value() : 0;
  const std::lock_guard lock(state.plans_mutex);
  auto& plan = state.plans[{call.collective, algorithm, root}];
  if (!plan) {
    auto made = make_plan(call, algorithm, state);
    if (!made) return made.error();
    plan = *std::move(made);
  }
  return plan;
}

Result<std::shared_ptr<std::byte>> library_memory(const std::shared_ptr<Memory>& memory,
                                                  Bytes size) {
  auto block = memory->allocate(size);
  if (!block) return block.error();
  return std::shared_ptr<std::byte>(*block, [memory](std::byte* data) { memory->release(data); });
}

Layout layout_for(const Call& call, const Program& program, int size) {
  return call.collective == Collective::kAllreduce || call.collective == Collective::kBroadcast
             ? Layout::share(call.count, program.chunk_count, size_of(call.dtype))
             : Layout::repeat(call.count, size);
}

Result<OperationSpec> make_spec(const Call& call, CommunicatorState& state) {
  const ContextState& context = *state.context;
  const int size = state.group->size();
  auto plan = find_plan(call, state);
  if (!plan) return plan.error();
  OperationSpec spec;
  spec.group = state.group;
  spec.program = (*plan)->program;
  spec.layout = layout_for(call, *spec.program, size);
  spec.dtype = call.dtype;
  if (reduces(call.collective)) {
    auto kernel = find_kernel(call.dtype, call.reduction);
    if (!kernel) return kernel.error();
    spec.kernel = *kernel;
    if (call.reduction == Reduction::kAverage) spec.divisor = static_cast<std::size_t>(size);
  }
  spec.in = call.in;
  spec.out = call.out;
  spec.out_count = out_count(call, static_cast<std::size_t>(size));
  const Bytes element = size_of(call.dtype);
  if (const auto slots = static_cast<std::size_t>(spec.program->scratch_slots); slots > 0) {
    const Bytes each = spec.layout.chunk_elements_max() * element;
    auto scratch =
        library_memory(context.memory, Bytes{std::max(each.value() * slots, std::size_t{1})});
    if (!scratch) return scratch.error();
    spec.scratch = *std::move(scratch);
  }
  if (reduces(call.collective) && call.reduction == Reduction::kPremultipliedSum) {
    const Count elements = in_count(call, static_cast<std::size_t>(size));
    auto copy = library_memory(context.memory,
                               Bytes{std::max((elements * element).value(), std::size_t{1})});
    if (!copy) return copy.error();
    scale(copy->get(), call.in, elements, call.dtype, call.options.factor);
    spec.staged_in = *std::move(copy);
    spec.in = spec.staged_in.get();
  }
  spec.signature = {
      static_cast<std::uint8_t>(call.collective),
      static_cast<std::uint8_t>(call.dtype),
      static_cast<std::uint8_t>(reduces(call.collective) ? call.reduction : Reduction::kSum),
      (*plan)->algorithm,
      call.collective == Collective::kBroadcast ? call.root.value() : -1,
      call.count.value()};
  spec.name = call.options.name;
  spec.stream = state.stream;
  spec.deadline = Deadline::after(context.operation_timeout);
  (*plan)->calls.fetch_add(1, std::memory_order_relaxed);
  (*plan)->bytes.fetch_add((spec.out_count * element).value(), std::memory_order_relaxed);
  return spec;
}

std::shared_ptr<Operation> launch(OperationSpec spec, CommunicatorState& state, bool background) {
  spec.id = {state.group->communicator, state.next_sequence.fetch_add(1)};
  auto operation = std::make_shared<Operation>(std::move(spec));
  state.context->engine->submit(operation, background);
  return operation;
}

/// FARANDOLE_CHECK: every rank shows what it is about to do; any difference raises on all ranks
/// before a byte of the operation has moved.
Result<void> compare_across_ranks(const OperationSpec& mine, CommunicatorState& state) {
  std::vector<Signature> all(static_cast<std::size_t>(state.group->size()));
  const CallOptions options{.algorithm = "ring", .name = "argument check"};
  auto spec =
      make_spec({Collective::kAllgather, reinterpret_cast<const std::byte*>(&mine.signature),
                 reinterpret_cast<std::byte*>(all.data()), Count{sizeof(Signature)}, DType::kUInt8,
                 Reduction::kSum, Rank{0}, options},
                state);
  if (!spec) return spec.error();
  const auto operation = launch(*std::move(spec), state, false);
  state.context->engine->wait(*operation);
  if (!operation->outcome()) return operation->outcome();
  bool equal = true;
  std::string text;
  for (std::size_t r = 0; r < all.size(); ++r) {
    equal &= all[r] == all[0];
    text += (r == 0 ? "rank " : ", rank ") + std::to_string(r) + ": " + describe(all[r]);
  }
  if (equal) return {};
  const std::string named = mine.name.empty() ? "" : " '" + mine.name + "'";
  return Error{
      ErrorKind::kMismatch,
      "ranks disagree on " + std::string(name(mine.program->collective)) + named + ": " + text};
}

Result<std::shared_ptr<Operation>> begin(const Call& call, CommunicatorState& state,
                                         bool background) {
  if (state.context->closed.load(std::memory_order_acquire)) {
    return Error{ErrorKind::kInvalidArgument,
                 std::string(name(call.collective)) + ": the library has been shut down."};
  }
  if (auto valid = check_call(call, state); !valid) return valid.error();
  auto spec = make_spec(call, state);
  if (!spec) {
    // Not the caller's mistake: the other ranks count this call, so it counts here as well.
    if (spec.error().kind != ErrorKind::kInvalidArgument) state.next_sequence.fetch_add(1);
    return spec.error();
  }
  if (state.context->check) {
    if (auto same = compare_across_ranks(*spec, state); !same) return same.error();
  }
  return launch(*std::move(spec), state, background);
}

/// False if it is still running after `give_up`; the error if it failed.
Result<bool> wait_until(Operation& operation, ContextState& context, Deadline give_up) {
  if (!operation.finished()) {
    const Clock::time_point since = Clock::now();
    context.engine->wait(operation, give_up);
    context.wait_ns.fetch_add(static_cast<std::uint64_t>((Clock::now() - since).count()),
                              std::memory_order_relaxed);
  }
  if (!operation.finished()) return false;
  if (!operation.outcome()) return operation.outcome().error();
  return true;
}

}  // namespace

std::string describe(const Signature& signature) {
  const auto collective = static_cast<Collective>(signature.collective);
  if (signature.collective >= kCollectiveCount || signature.dtype >= kDTypeCount ||
      signature.reduction >= kReductionCount || signature.algorithm >= algorithms().size()) {
    return "something unknown";
  }
  std::string text(name(collective));
  if (collective != Collective::kBarrier) {
    if (reduces(collective)) {
      text += " " + std::string(name(static_cast<Reduction>(signature.reduction)));
    }
    text += " " + std::string(name(static_cast<DType>(signature.dtype))) + "[" +
            std::to_string(signature.count) + "]";
  }
  if (collective == Collective::kBroadcast) text += " from root " + std::to_string(signature.root);
  return text + " by " + std::string(algorithms()[signature.algorithm]->name);
}

Result<void> Request::wait() {
  auto ended = wait_until(*operation_, *context_, Deadline::never());
  return ended ? Result<void>() : ended.error();
}

Result<bool> Request::wait_for(std::chrono::milliseconds timeout) {
  return wait_until(*operation_, *context_, Deadline::after(timeout));
}

Result<bool> Request::test() {
  if (!operation_->finished()) return false;
  if (!operation_->outcome()) return operation_->outcome().error();
  return true;
}

void Request::abort(const std::string& why) {
  context_->engine->abort(Error{ErrorKind::kInternal, why});
}

Rank Communicator::rank() const {
  return state_->group->self;
}
int Communicator::size() const {
  return state_->group->size();
}

Result<Request> Communicator::start(Collective collective, const void* in, void* out, Count count,
                                    DType dtype, Reduction reduction, Rank root,
                                    const CallOptions& options) {
  const Call call{collective,
                  static_cast<const std::byte*>(in),
                  static_cast<std::byte*>(out),
                  count,
                  dtype,
                  reduction,
                  root,
                  options};
  auto operation = begin(call, *state_, options.background);
  if (!operation) return operation.error();
  return Request(*std::move(operation), state_->context);
}

Result<void> Communicator::run(Collective collective, const void* in, void* out, Count count,
                               DType dtype, Reduction reduction, Rank root,
                               const CallOptions& options) {
  CallOptions at_once = options;
  at_once.background = false;
  auto request = start(collective, in, out, count, dtype, reduction, root, at_once);
  return request ? request->wait() : request.error();
}

Result<void> Communicator::allreduce(const void* in, void* out, Count count, DType dtype,
                                     Reduction reduction, const CallOptions& options) {
  return run(Collective::kAllreduce, in, out, count, dtype, reduction, Rank{0}, options);
}
Result<void> Communicator::reducescatter(const void* in, void* out, Count count, DType dtype,
                                         Reduction reduction, const CallOptions& options) {
  return run(Collective::kReducescatter, in, out, count, dtype, reduction, Rank{0}, options);
}
Result<void> Communicator::allgather(const void* in, void* out, Count count, DType dtype,
                                     const CallOptions& options) {
  return run(Collective::kAllgather, in, out, count, dtype, Reduction::kSum, Rank{0}, options);
}
Result<void> Communicator::broadcast(const void* in, void* out, Count count, DType dtype, Rank root,
                                     const CallOptions& options) {
  return run(Collective::kBroadcast, in, out, count, dtype, Reduction::kSum, root, options);
}
Result<void> Communicator::barrier(const CallOptions& options) {
  return run(Collective::kBarrier, nullptr, nullptr, Count{0}, DType::kUInt8, Reduction::kSum,
             Rank{0}, options);
}

}  // namespace farandole
