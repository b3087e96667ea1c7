// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "coordinator/controller.hpp"

namespace farandole::coordinator::test {

SharedRequest tensor(std::string name, std::vector<std::int64_t> shape = {4});
/// The same for all of a group, whose size is the number of names.
std::vector<SharedRequest> group(const std::string& label, const std::vector<std::string>& names);

/// What became of one request on one rank.
struct Answer {
  bool failed;
  std::string error;
  RankSet joined;
};

/// The controllers of all ranks of one process set, whose cycles run in lockstep in one thread;
/// reports and decisions are encoded and decoded on every hop of the tree. After every cycle it
/// is checked that the ranks agree on everything that they must agree on.
class Job {
 public:
  explicit Job(std::int32_t rank_count, ControllerOptions options = {});

  std::int32_t rank_count() const { return static_cast<std::int32_t>(ranks_.size()); }
  Controller& at(std::int32_t rank) { return ranks_[static_cast<std::size_t>(rank)].controller; }
  void add(std::int32_t rank, std::vector<SharedRequest> requests);
  void add(std::int32_t rank, const SharedRequest& request) { add(rank, std::vector{request}); }
  void join(std::int32_t rank) { at(rank).join(); }

  /// One cycle at the present time; `meanwhile` is called between its steps. False after the first
  /// violation, which is then known.
  bool cycle(const std::function<void()>& meanwhile = {});
  bool quiet();
  void wait(std::chrono::nanoseconds time) { now_ += time; }

  /// For a look at what the other checks are worth.
  void ignore_caches() { ignores_caches_ = true; }
  /// "": none so far.
  const std::string& violation() const { return violation_; }
  bool talked() const { return talked_; }
  std::int64_t cycles() const { return cycles_; }
  /// Names in the order in which they ran or failed, on every rank, in the last cycle.
  std::vector<std::string> last() const;
  const std::vector<Ready>& last_ready(std::int32_t rank) const {
    return ranks_[static_cast<std::size_t>(rank)].last;
  }
  /// In the order of add().
  const std::vector<Answer>& answers(std::int32_t rank, const std::string& name) const;
  /// Requests that were not answered.
  std::size_t open_count(std::int32_t rank) const;
  bool open(std::int32_t rank, const std::string& name) const;
  bool label_open(std::int32_t rank, const std::string& label) const;
  /// The rank that joined last, of every time that all had.
  const std::vector<std::int32_t>& all_joined() const { return all_joined_; }

 private:
  struct Rank {
    Controller controller;
    std::map<std::string, std::string> open;  // name: label
    std::map<std::string, std::vector<Answer>> answers;
    std::vector<Ready> last;
  };

  void fail(const std::string& what);
  bool gather_bits(std::vector<std::uint64_t>& all);
  bool talk();
  void collect(Rank& rank);
  void compare();

  std::vector<Rank> ranks_;
  std::string violation_;
  bool talked_ = false, ignores_caches_ = false;
  std::int64_t cycles_ = 0;
  std::vector<std::int32_t> all_joined_;
  Clock::time_point now_{};
};

}  // namespace farandole::coordinator::test
