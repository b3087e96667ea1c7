// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "simulation/call.hpp"

#include <algorithm>
#include <cstring>

#include "reduce/reduce.hpp"
#include "simulation/programs.hpp"

namespace farandole::simulation {
namespace {

constexpr std::size_t kGuard = 32;
constexpr std::byte kGuardByte{0xa5};
constexpr std::size_t kElement = 4;

struct Counts {
  std::size_t in, out, in_place;  // `in_place`: where the shorter one lies in the longer one
};

Counts counts_of(const CallPlan& plan, int rank, int size) {
  const std::size_t one = plan.count;
  const std::size_t all = one * static_cast<std::size_t>(size);
  const std::size_t mine = one * static_cast<std::size_t>(rank);
  switch (plan.collective) {
    case Collective::kReducescatter:
    case Collective::kScatter:
      return {all, one, mine};
    case Collective::kAllgather:
    case Collective::kGather:
      return {one, all, mine};
    case Collective::kAlltoall:
      return {all, all, 0};
    case Collective::kBarrier:
      return {0, 0, 0};
    default:
      return {one, one, 0};
  }
}

bool shares_chunks(Collective collective) {
  return collective == Collective::kAllreduce || collective == Collective::kReduce ||
         collective == Collective::kBroadcast || collective == Collective::kBarrier;
}

}  // namespace

std::string describe(const CallPlan& plan) {
  return std::string(name(plan.collective)) + " of " + std::to_string(plan.count) + " by " +
         plan.algorithm;
}

Call::Call(const CallPlan& plan, std::uint64_t number, int rank, int size)
    : plan_(plan), number_(number), rank_(rank), size_(size) {
  const Counts counts = counts_of(plan, rank, size);
  in_count_ = counts.in;
  out_count_ = counts.out;
  const bool at_root = !has_root(plan.collective) || rank == plan.root;
  const bool may =
      plan.collective != Collective::kAlltoall && (at_root || shares_chunks(plan.collective));
  const bool in_place = plan.in_place && may;
  memory_.assign(3 * kGuard + (in_count_ + out_count_) * kElement, kGuardByte);
  in_ = memory_.data() + kGuard;
  out_ = in_ + in_count_ * kElement + kGuard;
  if (in_place && in_count_ >= out_count_) out_ = in_ + counts.in_place * kElement;
  if (in_place && in_count_ < out_count_) in_ = out_ + counts.in_place * kElement;
  reset();
}

void Call::reset() {
  std::ranges::fill(memory_, kGuardByte);
  for (std::size_t at = 0; at < in_count_; ++at) write(in_, at, input(rank_, at));
}

std::int64_t Call::input(int rank, std::size_t at) const {
  const std::uint64_t mixed =
      (number_ * 40503u + static_cast<std::uint64_t>(rank) * 2654435761u + at * 97u + 12345u) *
      0x9e3779b97f4a7c15u;
  return static_cast<std::int64_t>(mixed >> 48);
}

std::int64_t Call::reduced(std::size_t at) const {
  std::int64_t result = input(0, at);
  for (int rank = 1; rank < size_; ++rank) {
    const std::int64_t next = input(rank, at);
    result = plan_.reduction == Reduction::kSum ? result + next : std::max(result, next);
  }
  return result;
}

std::int64_t Call::expected(std::size_t at) const {
  const std::size_t one = plan_.count;
  const std::size_t mine = one * static_cast<std::size_t>(rank_);
  const int peer = one > 0 ? static_cast<int>(at / one) : 0;
  switch (plan_.collective) {
    case Collective::kAllreduce:
    case Collective::kReduce:
      return reduced(at);
    case Collective::kBroadcast:
      return input(plan_.root, at);
    case Collective::kReducescatter:
      return reduced(mine + at);
    case Collective::kAllgather:
    case Collective::kGather:
      return input(peer, at % one);
    case Collective::kScatter:
      return input(plan_.root, mine + at);
    case Collective::kAlltoall:
      return input(peer, mine + at % one);
    case Collective::kBarrier:
      break;
  }
  return 0;
}

std::int64_t Call::read(const std::byte* from, std::size_t at) const {
  if (plan_.dtype == DType::kInt32) {
    std::int32_t value;
    std::memcpy(&value, from + at * kElement, kElement);
    return value;
  }
  float value;
  std::memcpy(&value, from + at * kElement, kElement);
  return value >= 0 && value < 1e9F ? static_cast<std::int64_t>(value) : -1;
}

void Call::write(std::byte* to, std::size_t at, std::int64_t value) const {
  const auto integer = static_cast<std::int32_t>(value);
  const auto real = static_cast<float>(value);
  std::memcpy(to + at * kElement,
              plan_.dtype == DType::kInt32 ? static_cast<const void*>(&integer) : &real, kElement);
}

/// Whether this rank gets a result.
bool Call::promised() const {
  const bool at_root =
      plan_.collective == Collective::kReduce || plan_.collective == Collective::kGather;
  return !at_root || rank_ == plan_.root;
}

std::string Call::wrong() const {
  for (std::size_t at = 0; promised() && at < out_count_; ++at) {
    const std::int64_t found = read(out_, at);
    if (found == expected(at)) continue;
    return "element " + std::to_string(at) + " of " + std::to_string(out_count_) + " is " +
           std::to_string(found) + " and should be " + std::to_string(expected(at));
  }
  return damage();
}

std::string Call::damage() const {
  const auto inside = [&](const std::byte* byte) {
    return (byte >= in_ && byte < in_ + in_count_ * kElement) ||
           (byte >= out_ && byte < out_ + out_count_ * kElement);
  };
  for (const std::byte& byte : memory_) {
    if (!inside(&byte) && byte != kGuardByte) {
      return "byte " + std::to_string(&byte - memory_.data()) + " outside the buffers was written";
    }
  }
  const std::byte* out_end = out_ + out_count_ * kElement;
  const bool apart = in_ >= out_end || in_ + in_count_ * kElement <= out_;
  for (std::size_t at = 0; apart && at < in_count_; ++at) {
    if (read(in_, at) != input(rank_, at)) {
      return "element " + std::to_string(at) + " of the input was written";
    }
  }
  return {};
}

Signature Call::signature() const {
  Signature signature;
  signature.collective = static_cast<std::uint8_t>(plan_.collective);
  signature.dtype = static_cast<std::uint8_t>(plan_.dtype);
  if (reduces(plan_.collective)) signature.reduction = static_cast<std::uint8_t>(plan_.reduction);
  signature.algorithm = algorithm_index(plan_.collective, plan_.algorithm);
  if (has_root(plan_.collective)) signature.root = plan_.root;
  signature.count = plan_.count;
  return signature;
}

/// Where `in` lies in `out`, in bytes, if it does.
std::optional<std::int64_t> Call::in_offset() const {
  const std::byte *in_end = in_ + in_count_ * kElement, *out_end = out_ + out_count_ * kElement;
  if (in_ != out_ && (in_ >= out_end || out_ >= in_end)) return std::nullopt;
  return in_ - out_;
}

std::shared_ptr<CollectiveOperation> Call::operation(OperationTerms terms, OperationId id) const {
  CollectiveSpec spec;
  spec.terms = std::move(terms);
  spec.id = id;
  static const auto cpu = std::make_shared<CpuDevice>();
  spec.device = cpu;
  const auto program = program_for(plan_.collective, plan_.algorithm, size_, plan_.root, rank_);
  const Count count{plan_.count};
  const Layout layout = shares_chunks(plan_.collective)
                            ? Layout::share(count, program->chunk_count, Bytes{kElement})
                            : Layout::repeat(count, size_);
  Binding binding{program, layout, layout, layout, plan_.dtype, in_offset()};
  auto bound = BoundProgram::bind(std::move(binding), flow_of(spec.terms.group));
  EXPECT_TRUE(bound) << bound.error().message;
  spec.bound = *std::move(bound);
  if (reduces(plan_.collective)) spec.kernel = *find_kernel(plan_.dtype, plan_.reduction);
  spec.in = in_;
  spec.out = out_;
  spec.out_count = Count{out_count_};
  const std::size_t slots = static_cast<std::size_t>(program->scratch_slots);
  if (slots > 0) {
    const std::size_t bytes = slots * layout.chunk_elements_max().value() * kElement;
    spec.scratch =
        std::shared_ptr<std::byte>(new std::byte[bytes + 1], std::default_delete<std::byte[]>());
  }
  spec.signature = signature();
  return std::make_shared<CollectiveOperation>(std::move(spec));
}

}  // namespace farandole::simulation
