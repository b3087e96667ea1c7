// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <functional>
#include <iostream>
#include <map>
#include <random>

#include "unit/algorithms/all_schedules.hpp"
#include "unit/algorithms/reference_executor.hpp"

namespace farandole {
namespace {

// One way to damage an action, in place; false where it does not apply.
using Damage = std::function<bool(const Schedule&, ConcreteAction&)>;
using Member = std::optional<ConcreteSpan> ConcreteAction::*;

Damage on_span(Member member, std::function<bool(const Schedule&, ConcreteSpan&)> damage) {
  return [=](const Schedule& header, ConcreteAction& action) {
    return (action.*member).has_value() && damage(header, *(action.*member));
  };
}

bool next_chunk(const Schedule& header, ConcreteSpan& span) {
  const std::int64_t chunks = chunks_of(header, span.buffer);
  span.first = (span.first + 1) % chunks;
  if (span.buffer != Buffer::kScratch) span.shape = span.first;
  return chunks > 1;
}

bool next_shape(const Schedule& header, ConcreteSpan& span) {
  span.shape = (span.shape + 1) % header.chunk_count;
  return span.buffer == Buffer::kScratch && header.chunk_count > 1;
}

bool next_buffer(const Schedule& header, ConcreteSpan& span) {
  span.buffer = span.buffer == Buffer::kIn                                ? Buffer::kOut
                : span.buffer == Buffer::kOut && header.scratch_slots > 0 ? Buffer::kScratch
                                                                          : Buffer::kIn;
  span.first = std::min(span.first, chunks_of(header, span.buffer) - 1);
  if (span.buffer != Buffer::kScratch) span.shape = span.first;
  return true;
}

std::map<std::string, Damage> action_damages() {
  std::map<std::string, Damage> damages;
  const std::pair<std::string, Member> members[] = {{"source", &ConcreteAction::source},
                                                    {"target", &ConcreteAction::target},
                                                    {"operand", &ConcreteAction::operand}};
  for (const auto& [name, member] : members) {
    damages["change chunk of " + name] = on_span(member, next_chunk);
    damages["change shape of " + name] = on_span(member, next_shape);
    damages["change buffer of " + name] = on_span(member, next_buffer);
    damages["lengthen " + name] =
        on_span(member, [](const Schedule&, ConcreteSpan& span) { return ++span.count > 0; });
    damages["shorten " + name] =
        on_span(member, [](const Schedule&, ConcreteSpan& span) { return --span.count >= 0; });
    damages["drop " + name] = [member = member](const Schedule&, ConcreteAction& action) {
      const bool had = (action.*member).has_value();
      (action.*member).reset();
      action.incoming_first = action.incoming_first && action.operand;
      return had;
    };
  }
  damages["redirect"] = [](const Schedule& header, ConcreteAction& action) {
    action.peer = (action.peer + 1) % header.rank_count;
    return action.kind != Action::Kind::kLocal;
  };
  damages["change lane"] = [](const Schedule& header, ConcreteAction& action) {
    action.lane = (action.lane + 1) % header.lane_count;
    return action.kind != Action::Kind::kLocal && header.lane_count > 1;
  };
  damages["add operand"] = [](const Schedule&, ConcreteAction& action) {
    const bool had = action.operand.has_value();
    action.operand = action.target;
    return action.target && !had;
  };
  damages["reverse operands"] = [](const Schedule&, ConcreteAction& action) {
    action.incoming_first = !action.incoming_first;
    return action.operand && action.kind == Action::Kind::kReceive;
  };
  damages["change order"] = [](const Schedule&, ConcreteAction& action) {
    action.after_previous = !action.after_previous;
    return true;
  };
  return damages;
}

std::optional<ConcreteSpan>& main_span(ConcreteAction& action) {
  return action.kind == Action::Kind::kSend ? action.source : action.target;
}

struct Counts {
  int mutants = 0, changed = 0, caught = 0, rejected = 0;
};

// The schedules to damage: every algorithm from the first and the last root, pipelines with two
// pieces and hierarchies of two layers where there are.
std::vector<Schedule> schedules_to_damage(std::int64_t p) {
  std::vector<Schedule> schedules;
  for (const AlgorithmInfo* info : algorithms()) {
    std::string spec(info->name);
    if (has_option(*info, "chunks")) spec += ":chunks=2";
    for (std::int64_t root = 0; root < p; root += p - 1) {
      if (root == 0 || has_root(info->collective)) {
        schedules.push_back(built(info->collective, spec, p, root));
      }
    }
  }
  return schedules;
}

std::size_t action_count(const Schedule& schedule) {
  std::size_t count = 0;
  for (const auto& rounds : expand(schedule).ranks) {
    for (const ConcreteRound& round : rounds) count += round.size();
  }
  return count;
}

// Damages one schedule in every way and asks both judges.
class MutationRun {
 public:
  MutationRun(Schedule schedule, Counts& counts)
      : intact_(expand(schedule)), what_(described(schedule)), counts_(counts) {}

  void run() {
    for (std::size_t r = 0; r < intact_.ranks.size(); ++r) {
      for (std::size_t k = 0; k < intact_.ranks[r].size(); ++k) {
        at_ = what_ + ", rank " + std::to_string(r) + ", round " + std::to_string(k);
        damage_round(r, k);
        for (std::size_t i = 0; i < intact_.ranks[r][k].size(); ++i) {
          for (const auto& [name, damage] : damages_) {
            Expanded mutant = intact_;
            if (damage(mutant.header, mutant.ranks[r][k][i])) judge_mutant(mutant, name);
          }
          damage_sequence(r, k, i);
        }
      }
    }
  }

  // Two actions anywhere, preferably of one round, damaged in the same way.
  void damage_two(std::mt19937& random) {
    const auto below = [&random](std::size_t limit) {
      return std::uniform_int_distribution<std::size_t>(0, limit - 1)(random);
    };
    const auto& [name, damage] =
        *std::next(damages_.begin(), static_cast<std::ptrdiff_t>(below(damages_.size())));
    Expanded mutant = intact_;
    if (mutant.ranks[0].empty()) return;
    const std::size_t k = below(mutant.ranks[0].size());
    for (int twice = 0; twice < 2; ++twice) {
      std::vector<ConcreteRound>& rounds = mutant.ranks[below(mutant.ranks.size())];
      ConcreteRound& round = rounds[below(4) == 0 ? below(rounds.size()) : k];
      if (round.empty() || !damage(mutant.header, round[below(round.size())])) return;
    }
    at_ = what_ + ", two ranks about round " + std::to_string(k);
    judge_mutant(mutant, name);
  }

 private:
  void damage_round(std::size_t r, std::size_t k) {
    using Rounds = std::vector<ConcreteRound>;
    const auto offset = static_cast<std::ptrdiff_t>(k);
    mutate(r, "remove round", [&](Rounds& rounds) { rounds.erase(rounds.begin() + offset); });
    mutate(r, "repeat round", [&](Rounds& rounds) {
      rounds.insert(rounds.begin() + offset, ConcreteRound(rounds[k]));
    });
    for (std::size_t other = k + 1; other < intact_.ranks[r].size(); ++other) {
      mutate(r, "swap rounds", [&](Rounds& rounds) { std::swap(rounds[k], rounds[other]); });
    }
    if (k + 1 == intact_.ranks[r].size()) return;
    mutate(r, "merge rounds", [&](Rounds& rounds) {
      rounds[k].insert(rounds[k].end(), rounds[k + 1].begin(), rounds[k + 1].end());
      rounds.erase(rounds.begin() + offset + 1);
    });
  }

  void damage_sequence(std::size_t r, std::size_t k, std::size_t i) {
    using Rounds = std::vector<ConcreteRound>;
    const auto offset = static_cast<std::ptrdiff_t>(i);
    mutate(r, "remove", [&](Rounds& rounds) { rounds[k].erase(rounds[k].begin() + offset); });
    mutate(r, "repeat", [&](Rounds& rounds) {
      rounds[k].insert(rounds[k].begin() + offset, ConcreteAction(rounds[k][i]));
    });
    mutate(r, "repeat later", [&](Rounds& rounds) {
      ConcreteAction again = rounds[k][i];
      again.after_previous = false;
      rounds.insert(rounds.begin() + static_cast<std::ptrdiff_t>(k) + 1, ConcreteRound(1, again));
    });
    const std::size_t next = i + 1 < intact_.ranks[r][k].size() ? k : k + 1;
    const std::size_t j = next == k ? i + 1 : 0;
    if (next == intact_.ranks[r].size() || j >= intact_.ranks[r][next].size()) return;
    mutate(r, "swap actions", [&](Rounds& rounds) { std::swap(rounds[k][i], rounds[next][j]); });
    mutate(r, "swap spans",
           [&](Rounds& rounds) { std::swap(main_span(rounds[k][i]), main_span(rounds[next][j])); });
    mutate(r, "swap operands",
           [&](Rounds& rounds) { std::swap(rounds[k][i].operand, rounds[next][j].operand); });
  }

  void mutate(std::size_t r, const std::string& name,
              const std::function<void(std::vector<ConcreteRound>&)>& damage) {
    Expanded mutant = intact_;
    damage(mutant.ranks[r]);
    judge_mutant(mutant, name);
  }

  void judge_mutant(const Expanded& mutant, const std::string& name) {
    const Result<Proof> proof = check(mutant);
    const auto wrong = judge(mutant);
    ++counts_.mutants;
    counts_.changed += wrong.has_value();
    counts_.rejected += !proof;
    counts_.caught += wrong && !proof;
    EXPECT_FALSE(wrong && proof) << at_ << ": " << name << " went unnoticed: " << *wrong;
  }

  const Expanded intact_;
  const std::string what_;
  std::string at_;
  Counts& counts_;
  const std::map<std::string, Damage> damages_ = action_damages();
};

void print(const std::string& what, const Counts& counts) {
  std::cout << what << ": " << counts.mutants << " mutants, " << counts.changed << " changed, "
            << counts.caught << " caught, " << counts.rejected - counts.caught
            << " more rejected\n";
}

// Goal: the verifier notices every damage that changes what a schedule does.
// Method: damage every step of every algorithm in some thirty ways, one at a time; an executor
// that shares no code with the verifier says which mutants give a wrong result, block or leave
// messages over, under any of eight regimes; all of those must be rejected.
TEST(Mutation, EveryHarmfulOneIsRejected) {
  std::map<std::string, Counts> by_algorithm;
  for (const std::int64_t p : {2, 3, 4, 5, 6, 7, 8, 9}) {
    for (const Schedule& schedule : schedules_to_damage(p)) {
      // Rings and exchanges look the same at every p, and their mutants grow as p^3.
      constexpr std::size_t kActionsMax = 80;
      if (p > 4 && action_count(schedule) > kActionsMax) continue;
      Counts& counts =
          by_algorithm[std::string(name(schedule.collective)) + " " + schedule.algorithm];
      MutationRun(schedule, counts).run();
    }
  }
  for (const auto& [algorithm, counts] : by_algorithm) {
    print(algorithm, counts);
    EXPECT_EQ(counts.caught, counts.changed);
    EXPECT_GT(counts.changed, 100);
  }
}

// Goal: damages that hide each other, as a send and its receive changed alike, are noticed too.
// Method: the same judges on pairs of damages of one kind, drawn with a printed seed.
TEST(Mutation, EveryHarmfulPairIsRejected) {
  constexpr unsigned kSeed = 20240611;
  std::cout << "seed " << kSeed << "\n";
  std::mt19937 random(kSeed);
  Counts counts;
  for (const std::int64_t p : {2, 3, 4, 5, 7}) {
    for (const Schedule& schedule : schedules_to_damage(p)) {
      MutationRun run(schedule, counts);
      for (int pair = 0; pair < 400; ++pair) run.damage_two(random);
    }
  }
  print("pairs", counts);
  EXPECT_EQ(counts.caught, counts.changed);
  EXPECT_GT(counts.changed, 1000);
  EXPECT_LT(counts.changed, counts.mutants);
}

}  // namespace
}  // namespace farandole
