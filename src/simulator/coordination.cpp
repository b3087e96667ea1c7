// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "simulator/coordination.hpp"

#include <algorithm>
#include <random>
#include <utility>

#include "algorithms/registry.hpp"
#include "coordinator/controller.hpp"
#include "coordinator/network.hpp"
#include "schedule/expand.hpp"

namespace farandole {
namespace {

using coordinator::Controller;
using coordinator::Decision;
using coordinator::Report;
using coordinator::SharedRequest;
using coordinator::Tree;

/// When a rank is free again, and the length of the chain of messages up to then.
struct RankClock {
  double free_us = 0;
  std::uint64_t depth = 0;
};

/// Moves messages in simulated time and counts them.
class Wires {
 public:
  Wires(const ControlNetworkModel& model, std::int32_t rank_count)
      : model_(model), clocks_(static_cast<std::size_t>(rank_count)) {}

  struct Arrival {
    double when_us = 0;
    std::uint64_t depth = 0, bytes = 0;
  };

  Arrival send(std::int32_t from, std::uint64_t bytes) {
    RankClock& clock = at(from);
    clock.free_us += busy_us(bytes);
    ++cost_.messages;
    cost_.bytes += bytes;
    cost_.message_bytes_max = std::max(cost_.message_bytes_max, bytes);
    return {clock.free_us + model_.latency_us, clock.depth + 1, bytes};
  }

  void receive(std::int32_t to, const Arrival& arrival) {
    RankClock& clock = at(to);
    const double earliest = arrival.when_us + model_.overhead_us;
    clock.free_us = std::max(earliest, clock.free_us + busy_us(arrival.bytes));
    clock.depth = std::max(clock.depth, arrival.depth);
    if (to == 0) ++cost_.received_by_rank_0;
  }

  CoordinationCost cost() const {
    CoordinationCost cost = cost_;
    for (const RankClock& clock : clocks_) {
      cost.seconds = std::max(cost.seconds, clock.free_us * 1e-6);
      cost.rounds = std::max(cost.rounds, clock.depth);
    }
    return cost;
  }

 private:
  double busy_us(std::uint64_t bytes) const {
    return model_.overhead_us + static_cast<double>(bytes) / model_.bytes_per_us;
  }
  RankClock& at(std::int32_t rank) { return clocks_[static_cast<std::size_t>(rank)]; }

  ControlNetworkModel model_;
  std::vector<RankClock> clocks_;
  CoordinationCost cost_;
};

/// The ranks of one job.
class Job {
 public:
  static Result<Job> create(const CoordinationScenario& scenario) {
    // What CommunicatorNetwork::all_and() runs.
    auto schedule =
        build_schedule(Collective::kAllreduce, "recursive_doubling", scenario.rank_count, 0);
    if (!schedule) return schedule.error();
    return Job(scenario, expand(*schedule));
  }

  Result<CoordinationCost> step() {
    const Clock::time_point now{};
    for (Controller& controller : controllers_) {
      std::ranges::shuffle(order_, random_);
      for (const std::size_t tensor : order_) controller.add({tensors_[tensor]}, now);
    }
    Wires wires(scenario_.network, scenario_.rank_count);
    exchange_bits(wires);
    if (controllers_.front().talks()) agree_on_the_rest(wires);
    if (auto same = compare_orders(); !same) return same.error();
    return wires.cost();
  }

 private:
  Job(const CoordinationScenario& scenario, Expanded allreduce)
      : scenario_(scenario), allreduce_(std::move(allreduce)), random_(scenario.seed) {
    const bool cached = scenario.design == CoordinationDesign::kCached;
    for (std::int32_t rank = 0; rank < scenario.rank_count; ++rank) {
      controllers_.emplace_back(
          coordinator::ControllerOptions{.rank = rank,
                                         .rank_count = scenario.rank_count,
                                         .cache_capacity = cached ? scenario.cache_capacity : 0,
                                         .stall_warning = std::chrono::nanoseconds(0)});
    }
    for (std::int32_t i = 0; i < scenario.tensor_count; ++i) {
      coordinator::TensorRequest request;
      request.name = "DistributedOptimizer.grad.layer" + std::to_string(i) + ".weight";
      request.dtype = DType::kFloat32;
      request.shape = {64, 64, 3, 3};
      tensors_.push_back(std::make_shared<const coordinator::TensorRequest>(std::move(request)));
      order_.push_back(static_cast<std::size_t>(i));
    }
  }

  void exchange_bits(Wires& wires) {
    std::vector<std::uint64_t> all;
    for (Controller& controller : controllers_) {
      const std::vector<std::uint64_t> own = controller.propose({});
      if (all.empty()) all.assign(own.size(), ~std::uint64_t{0});
      for (std::size_t i = 0; i < own.size(); ++i) all[i] &= own[i];
    }
    // Designs without a cache need no bits.
    if (scenario_.design == CoordinationDesign::kCached) walk(wires, all.size() * sizeof(all[0]));
    for (Controller& controller : controllers_) controller.conclude(all);
  }

  /// Round k is the same round on every rank: first all of its sends, then all of its receives.
  void walk(Wires& wires, std::uint64_t bytes) {
    const std::size_t rounds = allreduce_.ranks.front().size();
    std::vector<Wires::Arrival> from(controllers_.size());
    const auto each = [&](std::size_t round, auto visit) {
      for (std::int32_t rank = 0; rank < scenario_.rank_count; ++rank) {
        for (const ConcreteAction& action : allreduce_.ranks[std::size_t(rank)][round]) {
          visit(rank, action);
        }
      }
    };
    for (std::size_t round = 0; round < rounds; ++round) {
      each(round, [&](std::int32_t rank, const ConcreteAction& action) {
        if (action.kind == Action::Kind::kSend) from[std::size_t(rank)] = wires.send(rank, bytes);
      });
      each(round, [&](std::int32_t rank, const ConcreteAction& action) {
        if (action.kind == Action::Kind::kReceive) {
          wires.receive(rank, from[static_cast<std::size_t>(action.peer)]);
        }
      });
    }
  }

  Tree tree(std::int32_t rank) const {
    return Tree::at(rank, scenario_.rank_count, scenario_.design == CoordinationDesign::kFlat);
  }

  /// Children are higher ranks than their parents.
  void agree_on_the_rest(Wires& wires) {
    std::vector<Report> reports(controllers_.size());
    std::vector<Wires::Arrival> up(controllers_.size()), down(controllers_.size());
    for (std::int32_t rank = scenario_.rank_count; rank-- > 0;) {
      const auto self = static_cast<std::size_t>(rank);
      Report report = controllers_[self].report();
      for (const std::int32_t child : tree(rank).children) {
        wires.receive(rank, up[std::size_t(child)]);
        merge(report, std::move(reports[std::size_t(child)]));
      }
      reports[self] = std::move(report);
      if (rank > 0) up[self] = wires.send(rank, encode(reports[self]).size());
    }
    const Decision decision = controllers_.front().decide(std::move(reports.front()), {});
    const std::uint64_t bytes = encode(decision).size();
    for (std::int32_t rank = 0; rank < scenario_.rank_count; ++rank) {
      if (rank > 0) wires.receive(rank, down[std::size_t(rank)]);
      std::vector<std::int32_t> children = tree(rank).children;
      if (scenario_.design != CoordinationDesign::kFlat) std::ranges::reverse(children);
      for (const std::int32_t child : children) down[std::size_t(child)] = wires.send(rank, bytes);
      controllers_[std::size_t(rank)].apply(decision);
    }
  }

  Result<void> compare_orders() {
    std::vector<const coordinator::TensorRequest*> first;
    for (Controller& controller : controllers_) {
      std::vector<const coordinator::TensorRequest*> order;
      for (const coordinator::Ready& ready : controller.ready()) {
        if (ready.own && ready.response.error.empty())
          order.push_back(ready.response.request.get());
      }
      if (first.empty()) first = order;
      if (order != first || order.size() != tensors_.size()) {
        return Error{ErrorKind::kInternal, "simulate: the controllers do not agree on " +
                                               std::to_string(tensors_.size()) + " tensors."};
      }
    }
    return {};
  }

  CoordinationScenario scenario_;
  Expanded allreduce_;
  std::mt19937 random_;
  std::vector<Controller> controllers_;
  std::vector<SharedRequest> tensors_;
  std::vector<std::size_t> order_;
};

Error bad(const std::string& argument, std::int64_t given, const std::string& allowed) {
  return {ErrorKind::kInvalidArgument, "simulate: argument '" + argument + "' is " +
                                           std::to_string(given) + ", allowed is " + allowed + "."};
}

}  // namespace

Result<std::vector<CoordinationCost>> simulate_coordination(const CoordinationScenario& scenario,
                                                            int step_count) {
  if (scenario.rank_count < 1) return bad("rank_count", scenario.rank_count, "1 or more");
  if (scenario.tensor_count < 1) return bad("tensor_count", scenario.tensor_count, "1 or more");
  if (step_count < 1) return bad("step_count", step_count, "1 or more");
  const ControlNetworkModel& network = scenario.network;
  if (!(network.latency_us >= 0 && network.overhead_us >= 0 && network.bytes_per_us > 0)) {
    return Error{ErrorKind::kInvalidArgument,
                 "simulate: argument 'network' has a negative time or no bandwidth, allowed are "
                 "times of 0 or more and a bandwidth above 0."};
  }
  auto job = Job::create(scenario);
  if (!job) return job.error();
  std::vector<CoordinationCost> costs;
  for (int step = 0; step < step_count; ++step) {
    auto cost = job->step();
    if (!cost) return cost.error();
    costs.push_back(*cost);
  }
  return costs;
}

}  // namespace farandole
