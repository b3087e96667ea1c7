// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "frontend/gathering.hpp"

#include <algorithm>
#include <bit>
#include <chrono>
#include <utility>

#include "bootstrap/roster.hpp"
#include "bootstrap/wire.hpp"
#include "engine/aborts.hpp"

namespace farandole {
namespace {

using namespace std::chrono_literals;
constexpr std::string_view kGroupWord = "group ";  // begins every message
enum class GroupWord : std::uint8_t { kJoins = 1, kMade = 2, kWithdraws = 3 };
constexpr std::chrono::milliseconds kRepeatFirst = 500ms, kRepeatMost = 8s;
constexpr std::size_t kMadeKept = 64;

std::string encode_key(GroupWord word, const GroupKey& key) {
  Writer writer;
  writer.u8(static_cast<std::uint8_t>(word)).i32(key.tag).u32(key.parent).i32(key.parent_first);
  writer.u32(static_cast<std::uint32_t>(key.ranks.size()));
  for (const std::int32_t rank : key.ranks) writer.i32(rank);
  return std::string(kGroupWord) + writer.bytes();
}

std::string encode_call(GroupWord word, const GroupKey& key, std::uint64_t call) {
  return encode_key(word, key) + Writer().u64(call).bytes();
}

GroupKey read_key(Reader& reader) {
  GroupKey key;
  key.tag = reader.i32();
  key.parent = reader.u32();
  key.parent_first = reader.i32();
  const std::size_t count = std::min<std::size_t>(reader.u32(), reader.left() / 4);
  for (std::size_t i = 0; i < count; ++i) key.ranks.push_back(reader.i32());
  return key;
}

std::string name_of(const Members& members, std::int32_t rank) {
  const auto index = static_cast<std::size_t>(rank);
  return index < members.size() ? describe(members[index]) : "rank " + std::to_string(rank);
}

std::string call_of(const GroupKey& key) {
  const std::vector<int> ranks(key.ranks.begin(), key.ranks.end());
  return "create_group of " + describe(ranks) + " of the world with tag " + std::to_string(key.tag);
}

Rank first_of(const GroupKey& key) {
  return Rank{key.ranks.front()};
}

}  // namespace

std::optional<std::uint32_t> group_number(Rank first, std::size_t world_size, std::uint32_t count) {
  constexpr int kBits = std::countr_zero(kGroupNumbers);
  const int count_bits = kBits - static_cast<int>(std::bit_width(world_size - 1));
  if (count_bits < 0 || count >= std::uint64_t{1} << count_bits) return std::nullopt;
  return kGroupNumbers | static_cast<std::uint32_t>(first.value()) << count_bits | count;
}

Result<std::uint32_t> Gathering::gather(Rank self, const Members& members, const GroupKey& key,
                                        Deadline deadline, const Flood& flood) {
  std::unique_lock lock(mutex_);
  Waiting mine{key, self, ++calls_};
  const auto place = waiting_.insert(waiting_.end(), &mine);
  const auto say = [&](const std::string& message) {
    lock.unlock();
    flood(message);
    lock.lock();
  };
  const auto began = Clock::now();
  auto repeat_at = began;
  Clock::duration pause = kRepeatFirst;
  std::optional<Error> error;
  while (!mine.number && !error) {
    if (self == first_of(key) && all_joined(mine)) {
      auto made = make(mine, members);
      if (!made) {
        error = made.error();
      } else {
        mine.number = made->number;
        if (key.ranks.size() > 1) say(encode(*made));
      }
    } else if (auto end = ended(mine, members, deadline, began)) {
      error = std::move(end);
    } else if (Clock::now() >= repeat_at) {
      repeat_at = Clock::now() + pause;
      pause = std::min<Clock::duration>(2 * pause, kRepeatMost);
      say(encode_call(GroupWord::kJoins, key, mine.call));
    } else {
      changed_.wait_until(lock, std::min(repeat_at, deadline.when()));
    }
  }
  if (!mine.number) say(encode_call(GroupWord::kWithdraws, key, mine.call));
  waiting_.erase(place);
  if (mine.number) return *mine.number;
  return *error;
}

bool Gathering::all_joined(const Waiting& mine) const {
  const auto found = joined_.find(mine.key);
  return std::ranges::all_of(mine.key.ranks, [&](std::int32_t rank) {
    return rank == mine.self.value() || (found != joined_.end() && found->second.contains(rank));
  });
}

Result<Gathering::Made> Gathering::make(const Waiting& mine, const Members& members) {
  const auto number = group_number(mine.self, members.size(), numbers_);
  if (!number) {
    return Error{ErrorKind::kInternal, "create_group: all numbers for communicators of " +
                                           name_of(members, mine.self.value()) + " are used up."};
  }
  ++numbers_;
  Made made{mine.key, {}, *number};
  if (const auto found = joined_.find(mine.key); found != joined_.end()) {
    made.calls = std::move(found->second);
    joined_.erase(found);
  }
  made.calls[mine.self.value()] = mine.call;
  made_.push_back(made);
  if (made_.size() > kMadeKept) made_.pop_front();
  return made;
}

std::optional<Error> Gathering::ended(const Waiting& mine, const Members& members,
                                      Deadline deadline, Clock::time_point began) {
  if (closed_) {
    return Error{ErrorKind::kInvalidArgument, "create_group: the library has been shut down."};
  }
  if (auto error = lost(members, mine.key)) return error;
  if (!deadline.passed()) return std::nullopt;
  return late(mine, members, Clock::now() - began);
}

std::optional<Error> Gathering::lost(const Members& members, const GroupKey& key) const {
  for (const Departure& gone : gone_) {
    const std::int32_t rank = gone.rank.value();
    if (std::ranges::find(key.ranks, rank) == key.ranks.end()) continue;
    Error error{ErrorKind::kRankFailed,
                name_of(members, rank) + " " + gone.reason + " during " + call_of(key)};
    const Member& member = members[static_cast<std::size_t>(rank)];
    error.culprit = ProcessName{rank, member.host, member.pid};
    error.operation = call_of(key);
    return error;
  }
  return std::nullopt;
}

Error Gathering::late(const Waiting& mine, const Members& members, Clock::duration waited) const {
  const auto found = joined_.find(mine.key);
  std::vector<int> absent;
  for (const std::int32_t rank : mine.key.ranks) {
    const bool joined = found != joined_.end() && found->second.contains(rank);
    const bool came = joined || rank == mine.self.value() || mine.gave_up.contains(rank);
    if (!came) absent.push_back(rank);
  }
  std::string elsewhere;
  for (const int rank : absent) {
    for (const auto& [other, calls] : joined_) {
      if (!calls.contains(rank)) continue;
      elsewhere += "; " + name_of(members, rank) + " is in " + call_of(other);
      break;
    }
  }
  const std::string who = absent.empty() ? "all of them at once" : describe(absent);
  const auto time = std::chrono::round<std::chrono::milliseconds>(waited);
  return {ErrorKind::kTimedOut, call_of(mine.key) + ": " + who + " did not come within " +
                                    describe(time) + elsewhere + "."};
}

std::string Gathering::encode(const Made& made) {
  Writer writer;
  writer.u32(made.number);
  for (const std::int32_t rank : made.key.ranks) writer.u64(made.calls.at(rank));
  return encode_key(GroupWord::kMade, made.key) + writer.bytes();
}

bool Gathering::notice(Rank from, std::string_view message, std::string& answer) {
  if (!message.starts_with(kGroupWord)) return false;
  Reader reader(message.substr(kGroupWord.size()));
  const auto word = static_cast<GroupWord>(reader.u8());
  Made made{read_key(reader), {}};
  std::uint64_t call = 0;
  if (word == GroupWord::kMade) {
    made.number = reader.u32();
    for (const std::int32_t rank : made.key.ranks) made.calls[rank] = reader.u64();
  } else {
    call = reader.u64();
  }
  const bool member = std::ranges::find(made.key.ranks, from.value()) != made.key.ranks.end();
  if (!reader.complete() || !member) return true;
  const std::lock_guard lock(mutex_);
  if (word == GroupWord::kJoins) {
    take_join(from, std::move(made.key), call, answer);
  } else if (word == GroupWord::kWithdraws) {
    give_up(from, made.key, call, answer);
  } else if (word == GroupWord::kMade && from == first_of(made.key)) {
    take_made(made);
  }
  changed_.notify_all();
  return true;
}

/// A member that missed the answer repeats a join that this rank has already answered.
void Gathering::take_join(Rank from, GroupKey key, std::uint64_t call, std::string& answer) {
  for (const Made& made : made_) {
    if (made.key != key || made.calls.at(from.value()) < call) continue;
    if (made.calls.at(from.value()) == call) answer = encode(made);
    return;
  }
  if (!is_gone(from)) joined_[std::move(key)][from.value()] = call;
}

void Gathering::take_made(const Made& made) {
  for (Waiting* waiting : waiting_) {
    if (waiting->key != made.key) continue;
    const auto mine = made.calls.find(waiting->self.value());
    if (mine != made.calls.end() && mine->second == waiting->call) waiting->number = made.number;
  }
  for (const auto& [rank, call] : made.calls) withdraw(Rank{rank}, made.key, call);
}

void Gathering::give_up(Rank from, const GroupKey& key, std::uint64_t call, std::string& answer) {
  withdraw(from, key, call);
  for (Waiting* waiting : waiting_) {
    if (waiting->key == key) waiting->gave_up.insert(from.value());
  }
  for (const Made& made : made_) {
    if (made.key != key || made.calls.at(from.value()) != call) continue;
    answer = farandole::encode(Abort{made.number, first_of(key), from,
                                     "its call of create_group had ended before it heard that all "
                                     "members had come"});
  }
}

void Gathering::withdraw(Rank from, const GroupKey& key, std::uint64_t call) {
  const auto found = joined_.find(key);
  if (found == joined_.end()) return;
  const auto joined = found->second.find(from.value());
  if (joined != found->second.end() && joined->second <= call) found->second.erase(joined);
  if (found->second.empty()) joined_.erase(found);
}

bool Gathering::is_gone(Rank rank) const {
  return std::ranges::find(gone_, rank, &Departure::rank) != gone_.end();
}

void Gathering::departed(const Departure& departure) {
  const std::lock_guard lock(mutex_);
  if (!is_gone(departure.rank)) gone_.push_back(departure);
  for (auto entry = joined_.begin(); entry != joined_.end();) {
    entry->second.erase(departure.rank.value());
    entry = entry->second.empty() ? joined_.erase(entry) : std::next(entry);
  }
  changed_.notify_all();
}

void Gathering::close() {
  const std::lock_guard lock(mutex_);
  closed_ = true;
  changed_.notify_all();
}

}  // namespace farandole
