// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "coordinator/table.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include "bootstrap/roster.hpp"

namespace farandole::coordinator {
namespace {

constexpr std::size_t kNamesMax = 8;  // of a message that lists the names of a group

std::string title(const TensorRequest& request) {
  return (request.collective == Collective::kBarrier ? "barrier '" : "tensor '") + request.name +
         "'";
}

std::string dispute(const Report::Item& item, const RankNames& names) {
  const auto rank = [&](std::int32_t one) { return "rank " + std::to_string(name_of(one, names)); };
  return title(*item.request) + ": " + rank(item.ranks.front()) + " asked for " +
         describe(*item.request, names) + ", " + rank(item.disagreement->rank) + " for " +
         describe(*item.disagreement->request, names);
}

}  // namespace

std::string objection(const TensorRequest& request, const RankSet& neutral,
                      const RankNames& names) {
  if (neutral.empty()) return {};
  if (request.collective == Collective::kBroadcast && neutral.contains(request.root)) {
    return title(request) + " (" + describe(request, names) +
           "): its root has joined and has no data";
  }
  if (request.collective == Collective::kAllreduce && request.adasum) {
    return title(request) + " (" + describe(request, names) + "): needs data of every rank, but " +
           neutral.describe(names) + " joined";
  }
  return {};
}

std::string fails_with_group(const TensorRequest& request, const std::string& cause) {
  return title(request) + " fails with its group '" + request.group + "': " + cause;
}

// Labels are numbered in order of arrival. Labels that are tied together form one group, that of
// the lowest number.
struct Table::Groups {
  static constexpr std::size_t kNone = static_cast<std::size_t>(-1);

  std::vector<Group> groups;
  std::vector<std::size_t> parents;  // by label number; itself: the one that has the group
  std::vector<std::size_t> of;       // by entry: the number of its label, or kNone
  std::unordered_map<std::string_view, std::size_t> numbers;

  std::size_t number(const TensorRequest& request) {
    if (request.group.empty()) return kNone;
    const auto [place, fresh] = numbers.emplace(request.group, groups.size());
    if (fresh) {
      parents.push_back(groups.size());
      groups.push_back({&request.group, request.group_size});
    }
    return place->second;
  }
  std::size_t root(std::size_t number) const {
    while (parents[number] != number) number = parents[number];
    return number;
  }
  void tie(std::size_t a, std::size_t b) {
    a = root(a), b = root(b);
    if (a == b) return;
    parents[std::max(a, b)] = std::min(a, b);
    groups[std::min(a, b)].one_label = false;
  }
  Group* group(std::size_t entry) {
    return of[entry] == kNone ? nullptr : &groups[root(of[entry])];
  }
};

void Table::add(Report::Item item, Clock::time_point now) {
  const auto [place, fresh] = places_.emplace(item.request->name, entries_.size());
  if (fresh) {
    entries_.push_back({std::move(item), now});
  } else {
    merge(entries_[place->second].item, item);
  }
}

bool Table::late(const Entry& entry, std::chrono::nanoseconds limit, Clock::time_point now) const {
  return limit.count() > 0 && now - entry.since >= limit;
}

bool Table::overdue(Clock::time_point now) const {
  return !entries_.empty() && late(entries_.front(), limits_.shutdown, now);
}

bool Table::everybody(const RankSet& ranks, const RankSet& joined) const {
  if (joined.empty()) return ranks.count() == limits_.rank_count;
  RankSet both = ranks;
  both.add(joined);
  return both.count() == limits_.rank_count;
}

std::string Table::waiting(const Entry& entry, const RankSet& joined, Clock::time_point now) const {
  using std::chrono::milliseconds, std::chrono::seconds, std::chrono::duration_cast;
  auto time = duration_cast<milliseconds>(now - entry.since);
  if (time >= seconds(1)) time = duration_cast<seconds>(time);
  const TensorRequest& request = *entry.item.request;
  const RankSet& asked = entry.item.ranks;
  const RankSet missing = asked.without(limits_.rank_count).minus(joined);
  const RankNames& names = limits_.names;
  return title(request) + " (" + describe(request, names) + ") waits since " +
         farandole::describe(time) + " for " +
         (missing.empty() ? "the rest of its group" : missing.describe(names)) + "; " +
         asked.describe(names) + (asked.count() == 1 ? " has" : " have") + " asked for it";
}

// Why the entry fails by itself, whatever happens to its group; none unless it is overdue or
// complete.
Table::Fault Table::fault(const Entry& entry, const RankSet& joined, Clock::time_point now) const {
  if (everybody(entry.item.ranks, joined)) {
    if (entry.item.disagreement) return {dispute(entry.item, limits_.names)};
    std::string why = objection(*entry.item.request, joined.minus(entry.item.ranks), limits_.names);
    if (!why.empty()) return {std::move(why)};
  }
  if (!late(entry, limits_.shutdown, now)) return {};
  return {waiting(entry, joined, now), ErrorKind::kTimedOut};
}

Table::Groups Table::groups() const {
  Groups all;
  std::vector<bool> counts;  // by entry: as far as is known, all ranks gave it a label
  for (const Entry& entry : entries_) {
    const auto& disagreement = entry.item.disagreement;
    const std::size_t a = all.number(*entry.item.request);
    const std::size_t b = disagreement ? all.number(*disagreement->request) : a;
    if (a != Groups::kNone && b != Groups::kNone) all.tie(a, b);
    all.of.push_back(a != Groups::kNone ? a : b);
    counts.push_back(a != Groups::kNone && b != Groups::kNone);
  }
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    Group* group = all.group(i);
    if (group == nullptr) continue;
    group->entries.push_back(i);
    if (counts[i]) group->asked.add(entries_[i].item.ranks);
  }
  return all;
}

// Decides whether the group runs or fails. It does not fail before all ranks have asked for it,
// unless it is overdue: later ranks would wait for a group that has failed. A rank asks for all
// members at once.
void Table::judge(Group& group, const RankSet& joined, Clock::time_point now) const {
  bool complete = true;
  bool overdue = false;
  for (const std::size_t i : group.entries) {
    if (group.cause.empty()) {
      Fault own = fault(entries_[i], joined, now);
      group.cause = std::move(own.text);
      group.kind = own.kind;
    }
    complete = complete && everybody(entries_[i].item.ranks, joined);
    overdue = overdue || late(entries_[i], limits_.shutdown, now);
  }
  if (group.cause.empty() && group.one_label && group.entries.size() > group.size) {
    group.cause = "group '" + *group.label + "' of " + std::to_string(group.size) + " got " +
                  std::to_string(group.entries.size()) + " names:";
    for (std::size_t i = 0; i < std::min(group.entries.size(), kNamesMax); ++i) {
      const Report::Item& item = entries_[group.entries[i]].item;
      group.cause += (i == 0 ? " '" : ", '") + item.request->name + "' from " +
                     item.ranks.describe(limits_.names);
    }
  }
  if (!complete && !overdue && !everybody(group.asked, joined)) group.cause.clear();
  group.runs = complete && group.cause.empty() && group.entries.size() == group.size;
}

void Table::respond(std::size_t index, Fault fault, const RankSet& joined,
                    std::vector<Response>& responses) const {
  const Report::Item& item = entries_[index].item;
  RankSet late = joined.empty() ? RankSet() : joined.minus(joined.minus(item.ranks));
  responses.push_back({item.request, std::move(fault.text), std::move(late), fault.kind});
}

std::vector<Response> Table::conclude(const RankSet& joined, Clock::time_point now) {
  Groups all = groups();
  for (std::size_t i = 0; i < all.groups.size(); ++i) {
    if (!all.groups[i].entries.empty()) judge(all.groups[i], joined, now);
  }
  std::vector<Response> responses;
  std::vector<bool> gone(entries_.size(), false);
  const auto answer = [&](std::size_t i, Fault why) {
    respond(i, std::move(why), joined, responses);
    gone[i] = true;
  };
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    if (gone[i]) continue;
    const Group* const group = all.group(i);
    Fault own = fault(entries_[i], joined, now);
    if (group == nullptr) {
      if (!own.text.empty() || everybody(entries_[i].item.ranks, joined)) answer(i, std::move(own));
    } else if (!group->cause.empty()) {
      if (own.text.empty()) {
        own = {fails_with_group(*entries_[i].item.request, group->cause), group->kind};
      }
      answer(i, std::move(own));
    } else if (group->runs) {
      for (const std::size_t member : group->entries) answer(member, {});
    }
  }
  drop(gone);
  return responses;
}

void Table::drop(const std::vector<bool>& gone) {
  std::size_t kept = 0;
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    if (gone[i]) {
      places_.erase(entries_[i].item.request->name);
      continue;
    }
    if (kept != i) {
      places_[entries_[i].item.request->name] = kept;
      entries_[kept] = std::move(entries_[i]);
    }
    ++kept;
  }
  entries_.resize(kept);
}

void Table::inspect(const RankSet& joined, Clock::time_point now,
                    std::vector<std::string>& stalls) {
  for (Entry& entry : entries_) {
    if (!late(entry, limits_.warning, now)) break;  // the rest came later
    if (std::exchange(entry.warned, true)) continue;
    stalls.push_back(waiting(entry, joined, now));
  }
}

}  // namespace farandole::coordinator
