// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "coordination/submission.hpp"

#include <numeric>

#include "base/futex.hpp"
#include "frontend/call.hpp"
#include "reduce/reduce.hpp"

namespace farandole {
namespace {

std::string text(const std::vector<std::int64_t>& values) {
  std::string list = "[";
  for (const std::int64_t value : values) {
    list += (list.size() > 1 ? ", " : "") + std::to_string(value);
  }
  return list + "]";
}

bool coordinated(Collective collective) {
  switch (collective) {
    case Collective::kAllreduce:
    case Collective::kBroadcast:
    case Collective::kReducescatter:
    case Collective::kAllgather:
    case Collective::kAlltoall:
    case Collective::kBarrier:
      return true;
    case Collective::kReduce:
    case Collective::kGather:
    case Collective::kScatter:
      return false;
  }
  return false;
}

Result<void> check_shape(const TensorCall& call, const std::string& caller) {
  std::size_t left = kCountMax;
  for (const std::int64_t dimension : call.shape) {
    if (dimension < 0 || (dimension > 0 && static_cast<std::size_t>(dimension) > left)) {
      return bad_argument(caller, "shape", text(call.shape),
                          "sizes of 0 or more, at most 2^46 elements in all");
    }
    if (dimension > 0) left /= static_cast<std::size_t>(dimension);
  }
  const bool given = call.in != nullptr || call.collective == Collective::kBroadcast;
  if (!given && element_count(call.shape) > 0)
    return bad_argument(caller, "in", "null", "a buffer");
  const bool needs_out =
      call.collective == Collective::kAllreduce || call.collective == Collective::kBroadcast;
  if (needs_out && call.out == nullptr && element_count(call.shape) > 0) {
    return bad_argument(caller, "out", "null", "a buffer");
  }
  if (!needs_out && call.out != nullptr) {
    return bad_argument(caller, "out", "a buffer", "null; the library allocates the result");
  }
  return {};
}

Result<void> check_splits(const TensorCall& call, const std::string& caller, int rank_count) {
  if (call.splits.empty()) {
    if (row_count(call.shape) % rank_count == 0) return {};
    return bad_argument(
        caller, "shape", text(call.shape),
        "a first dimension that " + std::to_string(rank_count) + " ranks divide, or splits");
  }
  std::int64_t sum = 0;
  bool valid = std::cmp_equal(call.splits.size(), rank_count);
  for (const std::int64_t rows : call.splits) {
    valid = valid && rows >= 0 && rows <= row_count(call.shape);
    if (valid) sum += rows;
  }
  if (valid && sum <= row_count(call.shape)) return {};
  return bad_argument(caller, "splits", text(call.splits),
                      std::to_string(rank_count) + " numbers of rows that add up to " +
                          std::to_string(row_count(call.shape)) + " or less");
}

Result<void> check_reduction(const TensorCall& call, const std::string& caller) {
  if (call.reduction == Reduction::kPremultipliedSum) {
    return bad_argument(caller, "reduction", std::string(name(call.reduction)),
                        "any other; sum with a prescale is the same");
  }
  if (!call.adasum) {
    auto kernel = find_kernel(call.dtype, call.reduction);
    if (kernel) return {};
    return Error{kernel.error().kind, caller + ": " + kernel.error().message};
  }
  const bool real = call.dtype == DType::kFloat32 || call.dtype == DType::kFloat64;
  if (call.collective != Collective::kAllreduce) {
    return bad_argument(caller, "adasum", "true", "true for an allreduce only");
  }
  if (real) return {};
  return bad_argument(caller, "dtype", std::string(name(call.dtype)) + " with adasum",
                      "float32 or float64");
}

}  // namespace

std::size_t element_count(const std::vector<std::int64_t>& shape) {
  return std::accumulate(
      shape.begin(), shape.end(), std::size_t{1},
      [](std::size_t count, std::int64_t size) { return count * static_cast<std::size_t>(size); });
}

std::size_t row_length(const std::vector<std::int64_t>& shape) {
  if (shape.empty()) return 1;
  return element_count({shape.begin() + 1, shape.end()});
}

std::int64_t row_count(const std::vector<std::int64_t>& shape) {
  return shape.empty() ? 1 : shape.front();
}

Result<void> check_tensor_call(const TensorCall& call, int rank_count) {
  const std::string caller = std::string(name(call.collective)) + " '" + call.name + "'";
  if (call.name.empty()) return bad_argument(caller, "name", "empty", "a text");
  if (!coordinated(call.collective)) {
    return bad_argument(caller, "collective", std::string(name(call.collective)),
                        "allreduce, broadcast, reducescatter, allgather, alltoall or barrier");
  }
  if (call.collective == Collective::kBarrier) return {};
  if (auto shape = check_shape(call, caller); !shape) return shape;
  if (has_root(call.collective) && (call.root.value() < 0 || call.root.value() >= rank_count)) {
    return bad_argument(caller, "root", std::to_string(call.root.value()),
                        "0 to " + std::to_string(rank_count - 1));
  }
  if (call.collective == Collective::kAlltoall) return check_splits(call, caller, rank_count);
  if (reduces(call.collective)) return check_reduction(call, caller);
  return {};
}

coordinator::TensorRequest make_request(const TensorCall& call, const std::string& group,
                                        std::size_t group_size) {
  const bool reduces_it = reduces(call.collective);
  return {.name = call.name,
          .collective = call.collective,
          .reduction = reduces_it ? call.reduction : Reduction::kSum,
          .adasum = call.adasum,
          .dtype = call.dtype,
          .shape = call.shape,
          .root = has_root(call.collective) ? call.root.value() : 0,
          .prescale = reduces_it ? call.prescale : 1.0,
          .postscale = reduces_it ? call.postscale : 1.0,
          .leaves_out_joined = reduces_it && call.leaves_out_joined,
          .group = group,
          .group_size = static_cast<std::uint32_t>(group_size)};
}

void SubmissionState::sleep_until_finished(std::chrono::nanoseconds timeout) {
  std::uint32_t expected = kOpen;
  phase.compare_exchange_strong(expected, kSleptOn);
  if (expected != kFinished) futex_wait(phase, kSleptOn, timeout);
}

void SubmissionState::finish(Result<void> result) {
  outcome = std::move(result);
  if (phase.exchange(kFinished, std::memory_order_acq_rel) == kSleptOn) futex_wake_all(phase);
}

}  // namespace farandole
