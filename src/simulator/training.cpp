// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "simulator/training.hpp"

#include <algorithm>
#include <cmath>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "coordinator/fusion.hpp"

namespace farandole {
namespace {

// As many batches as the executor of the coordinator lets run at once.
constexpr std::size_t kFlightsMax = 4;

/// Requests that come together: a gradient, or a group when its last member is ready.
struct Submission {
  double ready = 0;
  std::vector<coordinator::Ready> requests;
};

Error refuse(const std::string& argument, const std::string& value, const std::string& allowed) {
  return {ErrorKind::kInvalidArgument,
          "argument '" + argument + "' is " + value + ", allowed is " + allowed + "."};
}

Result<void> check(const TrainingScenario& scenario) {
  const auto time = [](double seconds) { return std::isfinite(seconds) && seconds >= 0; };
  const std::pair<const char*, double> times[] = {{"compute_seconds", scenario.compute_seconds},
                                                  {"cycle_seconds", scenario.cycle_seconds},
                                                  {"control_seconds", scenario.control_seconds}};
  for (const auto& [name, seconds] : times) {
    if (!time(seconds)) return refuse(name, std::to_string(seconds), "0 or more");
  }
  for (std::size_t i = 0; i < scenario.gradients.size(); ++i) {
    const double ready = scenario.gradients[i].ready;
    if (!time(ready) || ready > scenario.compute_seconds) {
      return refuse("gradients[" + std::to_string(i) + "].ready", std::to_string(ready),
                    "0 to compute_seconds, " + std::to_string(scenario.compute_seconds));
    }
  }
  if (!scenario.allreduce_seconds) return refuse("allreduce_seconds", "empty", "a function");
  return {};
}

/// Sorted by time.
std::deque<Submission> submissions(const TrainingScenario& scenario) {
  const auto nobody = std::make_shared<const coordinator::RankSet>();
  std::map<std::int32_t, Submission> groups;
  std::vector<Submission> all;
  for (std::size_t i = 0; i < scenario.gradients.size(); ++i) {
    const TrainingScenario::Gradient& gradient = scenario.gradients[i];
    coordinator::TensorRequest request;
    request.name = std::to_string(i);
    request.dtype = DType::kFloat32;
    request.device = 0;
    request.shape = {static_cast<std::int64_t>(gradient.elements)};
    if (gradient.group >= 0) request.group = std::to_string(gradient.group);
    coordinator::Ready ready;
    ready.response.request = std::make_shared<const coordinator::TensorRequest>(std::move(request));
    ready.joined = nobody;
    Submission& submission = gradient.group < 0 ? all.emplace_back() : groups[gradient.group];
    submission.ready = std::max(submission.ready, gradient.ready);
    submission.requests.push_back(std::move(ready));
  }
  for (auto& [number, submission] : groups) all.push_back(std::move(submission));
  std::ranges::stable_sort(all, {}, &Submission::ready);
  return {std::make_move_iterator(all.begin()), std::make_move_iterator(all.end())};
}

std::uint64_t bytes_of(const coordinator::Batch& batch) {
  std::uint64_t bytes = 0;
  for (const coordinator::Ready& member : batch.members) {
    const coordinator::TensorRequest& request = *member.response.request;
    bytes += static_cast<std::uint64_t>(request.shape.front()) * size_of(request.dtype).value();
  }
  return bytes;
}

/// The fabric, on which batches run one after the other.
struct Fabric {
  double free = 0;
  std::deque<double> ends;  // of batches that may be in flight

  /// Sends a batch that is ready at `now`; returns when the coordinator's thread goes on.
  double send(double now, double seconds) {
    if (ends.size() == kFlightsMax) {
      now = std::max(now, ends.front());
      ends.pop_front();
    }
    free = std::max(free, now) + seconds;
    ends.push_back(free);
    return now;
  }
};

}  // namespace

Result<TrainingCost> simulate_training(const TrainingScenario& scenario) {
  if (auto valid = check(scenario); !valid) return valid.error();
  std::deque<Submission> waiting = submissions(scenario);
  TrainingCost cost;
  Fabric fabric;
  double now = 0;  // of the coordinator's thread
  while (!waiting.empty()) {
    const double first = waiting.front().ready;
    // After the backward pass the ranks wait, which ends the cycle time.
    const double due =
        std::max(first, std::min(first + scenario.cycle_seconds, scenario.compute_seconds));
    now = std::max(now, due);
    std::vector<coordinator::Ready> ready;
    for (; !waiting.empty() && waiting.front().ready <= now; waiting.pop_front()) {
      std::ranges::move(waiting.front().requests, std::back_inserter(ready));
    }
    now += scenario.control_seconds;
    ++cost.cycles;
    cost.control_seconds += scenario.control_seconds;
    for (const auto& batch : fuse(std::move(ready), scenario.fusion_threshold_bytes)) {
      const double seconds = scenario.allreduce_seconds(bytes_of(batch));
      now = fabric.send(now, seconds);
      cost.communication_seconds += seconds;
      ++cost.batches;
    }
  }
  cost.seconds = std::max(scenario.compute_seconds, fabric.free);
  cost.exposed_seconds = cost.seconds - scenario.compute_seconds;
  return cost;
}

}  // namespace farandole
