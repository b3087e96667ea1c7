// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "bootstrap/latecomers.hpp"

#include <unistd.h>

#include <atomic>
#include <chrono>
#include <list>
#include <mutex>
#include <thread>
#include <utility>

#include "bootstrap/bell.hpp"
#include "bootstrap/rendezvous.hpp"

namespace farandole {
namespace {

using namespace std::chrono_literals;
constexpr auto kExitTime = 5s, kExitTimeLate = 1s;

class Porter {
 public:
  Porter(const Job& job, std::unique_ptr<Listener> listener, const Error& failure,
         std::set<int> absent)
      : job_id_(job.id),
        listener_(std::move(listener)),
        answer_(encode_frame(static_cast<std::uint8_t>(RendezvousFrame::kFailure),
                             encode_failure(failure))),
        exit_time_(failure.kind == ErrorKind::kTimedOut ? kExitTimeLate : kExitTime),
        absent_(std::move(absent)),
        end_(Deadline::after(job.start_timeout)) {
    const SignalsBlocked inherited;
    thread_ = std::thread([this] { run(); });
  }
  Porter(const Porter&) = delete;
  Porter& operator=(const Porter&) = delete;
  ~Porter() { stop(Deadline::after(0s)); }

  /// Leaves a little time to ranks that are about to connect.
  void stop_at_exit() { stop(Deadline::after(exit_time_)); }
  bool done() const { return done_.load(); }

  void stop(Deadline end) {
    if (getpid() != pid_) return thread_.joinable() ? thread_.detach() : void();
    {
      const std::lock_guard lock(mutex_);
      if (end.when() < end_.when()) end_ = end;
    }
    bell_.ring();
    if (thread_.joinable()) thread_.join();
  }

 private:
  void run() {
    while (!(absent_.empty() && guests_.empty())) {
      PollSet set;
      {
        const std::lock_guard lock(mutex_);
        if (end_.passed()) break;
        set.wake_by(end_.when());
      }
      set.add(bell_.fd(), POLLIN);
      listener_->watch(set);
      for (Channel& guest : guests_) guest.watch(set);
      set.wait();
      bell_.drain();
      listener_->serve(set, admission());
      for (Channel& guest : guests_) {
        if (guest.ready(set) == 0) continue;
        guest.flush();
        (void)guest.read(kRegistrationBytesMax);
      }
      guests_.remove_if([](const Channel& guest) { return guest.ended(); });
    }
    guests_.clear();
    listener_.reset();
    done_.store(true);
  }

  Listener::Admission admission() {
    return {[this](const Identity& identity) {
              if (identity.purpose != Purpose::kRendezvous) return Verdict::kNotNow;
              if (identity.job != job_id_) return Verdict::kAnotherJob;
              // A rank that was told comes for the next job, for which rank 0 is not ready yet.
              return absent_.contains(identity.rank) ? Verdict::kWelcome : Verdict::kNotNow;
            },
            [this](const Identity& identity, Descriptor socket) {
              absent_.erase(identity.rank);
              guests_.emplace_back(std::move(socket));
              guests_.back().send(answer_);
            }};
  }

  const pid_t pid_ = getpid();
  const std::string job_id_;
  std::unique_ptr<Listener> listener_;
  const std::string answer_;
  const Clock::duration exit_time_;
  std::set<int> absent_;
  std::list<Channel> guests_;
  Bell bell_;
  std::atomic<bool> done_{false};
  std::mutex mutex_;
  Deadline end_;  // guarded by mutex_
  std::thread thread_;
};

/// One porter per job that has failed; most processes have one at most.
struct Lodge {
  std::mutex mutex;
  std::list<std::unique_ptr<Porter>> porters;
  ~Lodge() {
    for (auto& porter : porters) porter->stop_at_exit();
  }
};

Lodge& lodge() {
  static Lodge instance;
  return instance;
}

}  // namespace

void tell_latecomers(const Job& job, std::unique_ptr<Listener> listener, const Error& failure,
                     std::set<int> absent) {
  if (absent.empty()) return;
  Lodge& here = lodge();
  const std::lock_guard lock(here.mutex);
  here.porters.remove_if([](const auto& porter) { return porter->done(); });
  here.porters.push_back(
      std::make_unique<Porter>(job, std::move(listener), failure, std::move(absent)));
}

void forget_latecomers(const Job& job) {
  if (job.port == 0 && job.listen_fd < 0) return;
  Lodge& here = lodge();
  const std::lock_guard lock(here.mutex);
  here.porters.clear();
}

}  // namespace farandole
