// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "unit/coordinator/job.hpp"

namespace farandole::coordinator::test {

/// What is random about a schedule.
struct Kind {
  std::size_t capacity_min = 0, capacity_max = 6;
  std::int32_t rank_count_max = 8;
  int step_count_min = 1, name_count_min = 1;
  std::size_t set_count_max = 1;  // process sets, each with some of the ranks
  int mismatch_percent = 25;      // of steps, where one rank asks for something else
  int change_percent = 10;        // of names and of groups, between two steps
  bool joins = false;
};

/// A training loop of a few steps on all ranks, which submit in orders of their own, at times of
/// their own, a step or more ahead of each other; all drawn from one seed. What must come of every
/// request is known before it runs: it depends on who asks for what, and on no order.
class Schedule {
 public:
  Schedule(const Kind& kind, std::uint64_t seed);

  /// Runs it. "": every request was answered once, as it must be, and all checks of the Jobs hold.
  std::string run();

  /// In every other cycle or so one rank thinks that its oldest cache entry was used.
  void break_order_of_use(bool watch_caches);

  struct Counts {
    std::int64_t requests = 0, failures = 0, evictions = 0, invalidations = 0, hits = 0;
    Counts& operator+=(const Counts& other);
  };
  const Counts& counts() const { return counts_; }

 private:
  struct Set {
    std::vector<std::int32_t> members;  // ranks of the job; the index is the rank in the set
    Job job;
    // In the present step:
    std::map<std::string, TensorRequest> terms;   // of its names
    std::vector<std::vector<std::string>> units;  // names that run together
  };
  /// Requests that one rank submits together.
  struct Item {
    std::size_t set;
    std::int32_t rank;  // in the set
    std::vector<SharedRequest> requests;
  };
  struct Program {
    std::vector<Item> items;
    std::size_t next = 0;
    int asleep = 0;  // for that many cycles
    bool joined = false;
  };
  struct Expected {
    bool failed;
    RankSet joined;
  };
  using Names = std::vector<std::string>;

  int draw(int least, int most) { return std::uniform_int_distribution<int>(least, most)(random_); }
  bool chance(int percent) { return draw(1, 100) <= percent; }

  void make_sets();
  void make_step(std::size_t set);
  void change_terms(Set& set);
  TensorRequest random_terms(std::int32_t rank_count);
  std::vector<Names> partition(const Set& set);
  std::vector<SharedRequest> unit(const Set& set, const Names& names, const std::string& label);
  std::vector<std::vector<SharedRequest>> deviate(const std::vector<SharedRequest>& unit);
  SharedRequest vary(const SharedRequest& request);
  void expect(std::size_t set, const std::vector<Item>& step);
  void shuffle_into_programs(std::vector<Item> step);

  void submit(Program& program);
  bool blocked(const Item& item) const;
  bool finished();
  std::string verdict();

  Kind kind_;
  std::mt19937_64 random_;
  std::vector<Set> sets_;
  std::vector<Program> programs_;  // by rank of the job
  std::vector<int> steps_left_;    // by rank; one that has none left has joined
  // By set, rank in it, and name:
  std::map<std::pair<std::size_t, std::int32_t>, std::map<std::string, std::vector<Expected>>>
      expected_;
  bool broken_ = false;
  Counts counts_;
};

}  // namespace farandole::coordinator::test
