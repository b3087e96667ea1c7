// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "unit/coordinator/schedule.hpp"

#include <algorithm>
#include <set>
#include <utility>

namespace farandole::coordinator::test {
namespace {

constexpr int kStepsMax = 6;
constexpr int kNamesMax = 5;
constexpr std::int64_t kCyclesMax = 1000;  // far more than any of these takes

SharedRequest share(TensorRequest request) {
  return std::make_shared<const TensorRequest>(std::move(request));
}

}  // namespace

Schedule::Counts& Schedule::Counts::operator+=(const Counts& other) {
  requests += other.requests;
  failures += other.failures;
  evictions += other.evictions;
  invalidations += other.invalidations;
  hits += other.hits;
  return *this;
}

Schedule::Schedule(const Kind& kind, std::uint64_t seed) : kind_(kind), random_(seed) {
  const int rank_count = draw(2, kind_.rank_count_max);
  const int step_count = draw(kind_.step_count_min, kStepsMax);
  programs_.resize(static_cast<std::size_t>(rank_count));
  for (int rank = 0; rank < rank_count; ++rank) {
    steps_left_.push_back(kind_.joins ? draw(1, step_count) : step_count);
  }
  make_sets();
  for (int step = 0; step < step_count; ++step) {
    for (std::size_t set = 0; set < sets_.size(); ++set) make_step(set);
    for (int& left : steps_left_) --left;
  }
}

void Schedule::break_order_of_use(bool watch_caches) {
  broken_ = true;
  for (Set& set : sets_) {
    if (!watch_caches) set.job.ignore_caches();
  }
}

void Schedule::make_sets() {
  ControllerOptions options;
  options.cache_capacity = static_cast<std::size_t>(
      draw(static_cast<int>(kind_.capacity_min), static_cast<int>(kind_.capacity_max)));
  const int set_count = draw(1, static_cast<int>(kind_.set_count_max));
  for (int i = 0; i < set_count; ++i) {
    std::vector<std::int32_t> members;
    for (std::int32_t rank = 0; rank < static_cast<std::int32_t>(programs_.size()); ++rank) {
      if (i == 0 || chance(60)) members.push_back(rank);
    }
    if (members.empty()) continue;
    std::shuffle(members.begin(), members.end(), random_);
    const auto rank_count = static_cast<std::int32_t>(members.size());
    sets_.push_back({std::move(members), Job(rank_count, options), {}, {}});
    for (int name = draw(kind_.name_count_min, kNamesMax); name > 0; --name) {
      sets_.back().terms["t" + std::to_string(name)] = random_terms(rank_count);
    }
  }
}

TensorRequest Schedule::random_terms(std::int32_t rank_count) {
  TensorRequest request;
  request.dtype = chance(80) ? DType::kFloat32 : DType::kInt64;
  request.shape.assign(static_cast<std::size_t>(draw(0, 2)), draw(1, 3));
  request.device = chance(90) ? -1 : draw(0, 3);
  switch (draw(0, 9)) {
    case 0:
      request.collective = Collective::kAllgather;
      break;
    case 1:
      request.collective = Collective::kBarrier;
      break;
    case 2:
      request.adasum = true;
      break;
    case 3:
      request.collective = Collective::kBroadcast;
      request.root = draw(0, rank_count - 1);
      break;
    default:
      request.reduction = chance(80) ? Reduction::kSum : Reduction::kAverage;
  }
  return request;
}

void Schedule::change_terms(Set& set) {
  for (auto& [name, terms] : set.terms) {
    if (chance(kind_.change_percent)) terms = random_terms(set.job.rank_count());
  }
}

// The names, some of them in groups.
std::vector<Schedule::Names> Schedule::partition(const Set& set) {
  std::vector<Names> units;
  bool open = false;
  for (const auto& [name, terms] : set.terms) {
    if (open && chance(70)) {
      units.back().push_back(name);
    } else {
      units.push_back({name});
      open = chance(name < "t3" ? 80 : 20);
    }
  }
  return units;
}

std::vector<SharedRequest> Schedule::unit(const Set& set, const Names& names,
                                          const std::string& label) {
  std::vector<SharedRequest> requests;
  for (const std::string& name : names) {
    TensorRequest request = set.terms.at(name);
    request.name = name;
    if (names.size() > 1) {
      request.group = label;
      request.group_size = static_cast<std::uint32_t>(names.size());
    }
    requests.push_back(share(std::move(request)));
  }
  return requests;
}

SharedRequest Schedule::vary(const SharedRequest& request) {
  TensorRequest other = *request;
  switch (draw(0, 4)) {
    case 0:
      other.shape.push_back(7);
      break;
    case 1:
      other.dtype = DType::kFloat16;
      break;
    case 2:
      other.reduction = Reduction::kMax;
      break;
    case 3:
      other.device = other.device < 0 ? 0 : -1;
      break;
    default:
      other.collective =
          other.collective == Collective::kBarrier ? Collective::kAllreduce : Collective::kBarrier;
  }
  return share(std::move(other));
}

// What one rank submits that does something else than the others, or in other groups.
std::vector<std::vector<SharedRequest>> Schedule::deviate(const std::vector<SharedRequest>& unit) {
  std::vector<SharedRequest> other = unit;
  const auto victim = static_cast<std::size_t>(draw(0, static_cast<int>(unit.size()) - 1));
  if (unit.size() == 1 || chance(50)) {
    other[victim] = vary(unit[victim]);
    return {other};
  }
  TensorRequest changed = *unit[victim];
  if (chance(50)) {
    changed.name = "stranger";
    other[victim] = share(std::move(changed));
    return {other};
  }
  std::vector<std::vector<SharedRequest>> alone;
  for (const SharedRequest& request : unit) {
    TensorRequest single = *request;
    single.group.clear();
    single.group_size = 1;
    alone.push_back({share(std::move(single))});
  }
  return alone;
}

void Schedule::make_step(std::size_t number) {
  Set& set = sets_[number];
  change_terms(set);
  std::vector<Item> step;
  if (set.units.empty() || chance(kind_.change_percent)) set.units = partition(set);
  int deviations = chance(kind_.mismatch_percent) ? 1 : 0;
  int groups = 0;
  for (const Names& names : set.units) {
    if (chance(10)) continue;
    // A label may come again with other names in the next step, but a rank that does not use it
    // would be there too early.
    std::string label = "g" + std::to_string(groups);
    if (kind_.mismatch_percent > 0) label += names.front() + names.back();
    std::vector<SharedRequest> requests = unit(set, names, label);
    if (names.size() > 1) ++groups;
    const bool deviates = deviations > 0 && chance(50);
    if (deviates) --deviations;
    const int deviant = draw(0, set.job.rank_count() - 1);
    for (std::int32_t rank = 0; rank < set.job.rank_count(); ++rank) {
      const int left =
          steps_left_[static_cast<std::size_t>(set.members[static_cast<std::size_t>(rank)])];
      // In its last step before it joins, a rank has part of what the others have.
      if (left <= 0 || (kind_.joins && left == 1 && chance(40))) continue;
      std::vector<std::vector<SharedRequest>> own{requests};
      if (deviates && rank == deviant) own = deviate(requests);
      for (auto& one : own) {
        for (SharedRequest& request : one) {
          const bool rows = request->collective == Collective::kAllgather;
          if (!rows || request->shape.empty() || chance(50)) continue;
          TensorRequest longer = *request;
          longer.shape.front() = draw(0, 9);
          request = share(std::move(longer));
        }
        step.push_back({number, rank, std::move(one)});
      }
    }
  }
  expect(number, step);
  shuffle_into_programs(std::move(step));
}

// All that is tied together by a name or a label fails if two ranks disagree on any of it, or if
// it needs data of a rank that does not ask.
void Schedule::expect(std::size_t number, const std::vector<Item>& step) {
  struct Use {
    SharedRequest first;
    RankSet ranks;
    std::set<std::string> labels;
    bool failed = false;
  };
  std::map<std::string, Use> uses;
  for (const Item& item : step) {
    for (const SharedRequest& request : item.requests) {
      Use& use = uses[request->name];
      if (!use.first) use.first = request;
      use.failed = use.failed || !agree(*use.first, *request);
      use.ranks.add(item.rank);
      if (!request->group.empty()) use.labels.insert(request->group);
    }
  }
  std::map<std::string, std::set<std::string>> groups;
  for (auto& [name, use] : uses) {
    const RankSet without = use.ranks.without(sets_[number].job.rank_count());
    const TensorRequest& first = *use.first;
    if (first.collective == Collective::kBroadcast && without.contains(first.root)) {
      use.failed = true;
    }
    if (first.collective == Collective::kAllreduce && first.adasum && !without.empty()) {
      use.failed = true;
    }
    for (const std::string& label : use.labels) groups[label].insert(name);
  }
  for (const auto& [label, names] : groups) {
    bool failed = false;
    for (const std::string& name : names) {
      const TensorRequest& first = *uses[name].first;
      failed =
          failed || uses[name].failed || (first.group == label && names.size() > first.group_size);
    }
    for (const std::string& name : names) uses[name].failed = failed;
  }
  for (const auto& [name, use] : uses) {
    const RankSet without = use.ranks.without(sets_[number].job.rank_count());
    for (std::int32_t rank = 0; rank < sets_[number].job.rank_count(); ++rank) {
      if (!use.ranks.contains(rank)) continue;
      expected_[{number, rank}][name].push_back({use.failed, without});
    }
  }
}

void Schedule::shuffle_into_programs(std::vector<Item> step) {
  std::shuffle(step.begin(), step.end(), random_);
  for (Item& item : step) {
    counts_.requests += static_cast<std::int64_t>(item.requests.size());
    const std::int32_t rank = sets_[item.set].members[static_cast<std::size_t>(item.rank)];
    programs_[static_cast<std::size_t>(rank)].items.push_back(std::move(item));
  }
}

// A name and a label are used once at a time. Who asked for a stranger instead of a name waits,
// too: its next use of that name would be taken for what the others ask for now.
bool Schedule::blocked(const Item& item) const {
  const Job& job = sets_[item.set].job;
  if (job.open(item.rank, "stranger")) return true;
  for (const SharedRequest& request : item.requests) {
    if (job.open(item.rank, request->name)) return true;
    if (!request->group.empty() && job.label_open(item.rank, request->group)) return true;
  }
  return false;
}

void Schedule::submit(Program& program) {
  if (program.asleep > 0) {
    --program.asleep;
    return;
  }
  if (chance(5)) program.asleep = draw(1, 12);
  for (int left = draw(0, 3); left > 0 && program.next < program.items.size(); --left) {
    const Item& item = program.items[program.next];
    if (blocked(item)) return;
    sets_[item.set].job.add(item.rank, item.requests);
    ++program.next;
  }
  if (!kind_.joins || program.joined || program.next < program.items.size() || chance(50)) return;
  program.joined = true;
  const auto self = static_cast<std::int32_t>(&program - programs_.data());
  for (Set& set : sets_) {
    const auto member = std::find(set.members.begin(), set.members.end(), self);
    if (member == set.members.end()) continue;
    set.job.join(static_cast<std::int32_t>(member - set.members.begin()));
  }
}

bool Schedule::finished() {
  for (const Program& program : programs_) {
    if (program.next < program.items.size() || (kind_.joins && !program.joined)) return false;
  }
  return std::all_of(sets_.begin(), sets_.end(), [](Set& set) { return set.job.quiet(); });
}

std::string Schedule::run() {
  const auto submit_some = [this] {
    for (Program& program : programs_) {
      if (chance(40)) submit(program);
    }
  };
  for (std::int64_t cycle = 0; !finished(); ++cycle) {
    if (cycle == kCyclesMax) return "there is no end to it";
    submit_some();
    Set& set = sets_[static_cast<std::size_t>(draw(0, static_cast<int>(sets_.size()) - 1))];
    if (broken_ && chance(50)) {
      // The controller is not const, and knows no such mistake by itself.
      auto& cache = const_cast<Cache&>(set.job.at(draw(0, set.job.rank_count() - 1)).cache());
      if (const auto oldest = cache.oldest()) cache.touch(*oldest);
    }
    if (!set.job.cycle(submit_some)) return set.job.violation();
  }
  return verdict();
}

std::string Schedule::verdict() {
  for (std::size_t number = 0; number < sets_.size(); ++number) {
    Job& job = sets_[number].job;
    if (job.all_joined().size() != (kind_.joins ? 1u : 0u)) return "not all have joined once";
    for (std::int32_t rank = 0; rank < job.rank_count(); ++rank) {
      const std::string self = " of rank " + std::to_string(rank);
      if (job.open_count(rank) != 0) return "a request" + self + " has no answer";
      for (const auto& [name, expected] : expected_[{number, rank}]) {
        const std::vector<Answer>& answers = job.answers(rank, name);
        if (answers.size() != expected.size()) return "a lost or doubled " + name + self;
        for (std::size_t i = 0; i < answers.size(); ++i) {
          const std::string use = "use " + std::to_string(i) + " of '" + name + "'" + self;
          if (answers[i].failed != expected[i].failed) {
            return use + (expected[i].failed ? " ran" : " failed: ") + answers[i].error;
          }
          if (!answers[i].failed && answers[i].joined != expected[i].joined) {
            return use + " ran without data of others than those that had none";
          }
          counts_.failures += answers[i].failed;
        }
      }
      counts_.hits += static_cast<std::int64_t>(job.at(rank).statistics().hits);
    }
    counts_.evictions += static_cast<std::int64_t>(job.at(0).statistics().evictions);
    counts_.invalidations += static_cast<std::int64_t>(job.at(0).statistics().invalidations);
  }
  return "";
}

}  // namespace farandole::coordinator::test
