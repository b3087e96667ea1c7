// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <condition_variable>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "algorithms/registered.hpp"
#include "delegates/delegate.hpp"
#include "reduce/reduce.hpp"

namespace farandole::testing {

struct CopierOptions {
  std::string name;
  bool reaches_nobody = false;
  std::optional<Rank> fails_at_start, fails_later;  // in the communicator
};

/// A delegate for ranks that are threads of one process: a thread of its own waits until all have
/// come to a call, and then copies, and adds up, between their buffers.
class Copier final : public Delegate {
 public:
  using Options = CopierOptions;
  explicit Copier(Options options) : options_(std::move(options)) {}
  /// The name of the one that costs next to nothing; the others cost a day, so that nobody takes
  /// them but by name. Set while there are no ranks.
  static inline std::string cheap;

  /// Registers one, once in this process; returns its name.
  static std::string add(const std::string& name, Options options = {}) {
    options.name = name;
    if (!find_registered(Collective::kAllreduce, name)) {
      EXPECT_TRUE(register_delegate(std::make_shared<Copier>(options)));
    }
    return name;
  }

  std::string_view name() const override { return options_.name; }
  std::string_view summary() const override { return "A thread copies."; }
  std::span<const Collective> collectives() const override { return kCollectives; }
  bool supports(const DelegateQuery& query) const override {
    if (query.device != "cpu" || query.reduction == Reduction::kAverage) return false;
    return query.reduction != Reduction::kPremultipliedSum && query.dtype != DType::kBFloat16;
  }
  bool reaches(const DelegateMembers& members) const override {
    if (options_.reaches_nobody) return false;
    return std::ranges::all_of(members.members, [&](const DelegateMembers::Member& member) {
      return member.host == members.members[0].host && member.pid == members.members[0].pid;
    });
  }
  DelegatePrice price(Collective, std::int64_t, std::int64_t) const override {
    return options_.name == cheap ? DelegatePrice{1e-9, 1e-15} : DelegatePrice{86400, 0};
  }
  Result<std::shared_ptr<DelegateGroup>> join(const DelegateMembers& members) const override;

 private:
  class Hub;
  class Run;
  class Part;
  static constexpr std::array kCollectives = {Collective::kAllreduce, Collective::kBroadcast,
                                              Collective::kAllgather};
  using Key = std::tuple<std::string, std::uint32_t, int>;
  const Options options_;
  mutable std::mutex mutex_;
  mutable std::map<Key, std::weak_ptr<Hub>> hubs_;
};

/// Where the ranks of one communicator meet.
class Copier::Hub {
 public:
  enum class State { kWaiting, kCopying, kDone };
  struct Entry {
    DelegateCall call;
    bool fails = false;  // later, so nothing is copied before
    State state = State::kWaiting;
  };
  explicit Hub(std::size_t ranks) : wakers_(ranks), thread_([this] { work(); }) {}
  ~Hub() {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }
  void set_waker(std::size_t rank, std::function<void()> wake) {
    const std::lock_guard lock(mutex_);
    wakers_[rank] = std::move(wake);
  }
  std::shared_ptr<Entry> enter(std::size_t rank, const DelegateCall& call, bool fails) {
    auto entry = std::make_shared<Entry>(Entry{call, fails});
    {
      const std::lock_guard lock(mutex_);
      auto& all = meetings_[call.sequence];
      all.resize(wakers_.size());
      all[rank] = entry;
    }
    changed_.notify_all();
    return entry;
  }
  bool done(const Entry& entry) {
    const std::lock_guard lock(mutex_);
    return entry.state == State::kDone;
  }
  /// True once nothing touches the entry's memory.
  bool leave(std::size_t rank, const Entry& entry) {
    const std::lock_guard lock(mutex_);
    if (entry.state == State::kCopying) return false;
    const auto found = meetings_.find(entry.call.sequence);
    if (found != meetings_.end() && found->second[rank].get() == &entry) {
      found->second[rank].reset();
    }
    return true;
  }

 private:
  using Meeting = std::vector<std::shared_ptr<Entry>>;
  static bool complete(const Meeting& meeting) {
    return std::ranges::all_of(meeting, [&](const auto& entry) {
      if (entry == nullptr || meeting[0] == nullptr || entry->fails) return false;
      const DelegateCall &a = entry->call, &b = meeting[0]->call;
      return a.collective == b.collective && a.count == b.count && a.dtype == b.dtype &&
             a.reduction == b.reduction && a.root == b.root;
    });
  }
  void work() {
    std::unique_lock lock(mutex_);
    while (!stopping_) {
      const auto found =
          std::ranges::find_if(meetings_, [](const auto& one) { return complete(one.second); });
      if (found == meetings_.end()) {
        changed_.wait(lock);
        continue;
      }
      const Meeting meeting = std::move(found->second);
      meetings_.erase(found);
      for (const auto& entry : meeting) entry->state = State::kCopying;
      lock.unlock();
      run(meeting);
      lock.lock();
      for (const auto& entry : meeting) entry->state = State::kDone;
      for (const auto& wake : wakers_) {
        if (wake) wake();
      }
    }
  }
  static void run(const Meeting& meeting) {
    const DelegateCall& first = meeting[0]->call;
    const std::size_t bytes = (first.count * size_of(first.dtype)).value();
    std::vector<std::byte> result;
    const auto add = [&](const void* from) {
      const auto* data = static_cast<const std::byte*>(from);
      result.insert(result.end(), data, data + bytes);
    };
    if (first.collective == Collective::kBroadcast) {
      add(meeting[static_cast<std::size_t>(first.root.value())]->call.in);
    } else if (first.collective == Collective::kAllgather) {
      for (const auto& entry : meeting) add(entry->call.in);
    } else {
      add(first.in);
      const ReduceKernel kernel = *find_kernel(first.dtype, first.reduction);
      for (std::size_t rank = 1; rank < meeting.size(); ++rank) {
        const auto* in = static_cast<const std::byte*>(meeting[rank]->call.in);
        kernel(result.data(), result.data(), in, first.count);
      }
    }
    for (const auto& entry : meeting) {
      if (!result.empty()) std::memcpy(entry->call.out, result.data(), result.size());
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::uint32_t, Meeting> meetings_;
  std::vector<std::function<void()>> wakers_;
  bool stopping_ = false;
  std::thread thread_;
};

class Copier::Run final : public DelegateRun {
 public:
  Run(std::shared_ptr<Hub> hub, std::size_t rank, const DelegateCall& call, bool fails)
      : hub_(std::move(hub)), rank_(rank), entry_(hub_->enter(rank, call, fails)) {}
  ~Run() override {
    while (!abort()) std::this_thread::yield();
  }
  std::optional<Result<void>> poll() override {
    if (entry_->fails && abort()) return Error{ErrorKind::kInternal, "the copier broke down"};
    if (hub_->done(*entry_)) return Result<void>();
    return std::nullopt;
  }
  bool abort() override { return hub_->leave(rank_, *entry_); }

 private:
  const std::shared_ptr<Hub> hub_;
  const std::size_t rank_;
  const std::shared_ptr<Hub::Entry> entry_;
};

class Copier::Part final : public DelegateGroup {
 public:
  Part(std::shared_ptr<Hub> hub, const DelegateMembers& members, const Options& options)
      : hub_(std::move(hub)), self_(members.self), options_(options) {
    hub_->set_waker(rank(), members.wake);
  }
  ~Part() override { hub_->set_waker(rank(), nullptr); }
  Result<std::unique_ptr<DelegateRun>> start(const DelegateCall& call) override {
    if (options_.fails_at_start == self_) {
      return Error{ErrorKind::kInternal, "the copier would not start"};
    }
    return std::unique_ptr<DelegateRun>(
        std::make_unique<Run>(hub_, rank(), call, options_.fails_later == self_));
  }

 private:
  std::size_t rank() const { return static_cast<std::size_t>(self_.value()); }
  const std::shared_ptr<Hub> hub_;
  const Rank self_;
  const Options options_;
};

inline Result<std::shared_ptr<DelegateGroup>> Copier::join(const DelegateMembers& members) const {
  const std::lock_guard lock(mutex_);
  auto& known = hubs_[{members.job, members.communicator, members.members[0].world_rank.value()}];
  auto hub = known.lock();
  if (!hub) known = hub = std::make_shared<Hub>(members.members.size());
  return std::shared_ptr<DelegateGroup>(std::make_shared<Part>(std::move(hub), members, options_));
}

}  // namespace farandole::testing
