// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "bootstrap/session.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <mutex>
#include <optional>
#include <set>
#include <thread>
#include <vector>

#include "base/log.hpp"
#include "bootstrap/bell.hpp"
#include "bootstrap/complete.hpp"
#include "bootstrap/exchange.hpp"
#include "bootstrap/invalid.hpp"
#include "bootstrap/latecomers.hpp"
#include "bootstrap/links.hpp"
#include "bootstrap/meeting.hpp"
#include "bootstrap/probes.hpp"
#include "bootstrap/rendezvous.hpp"
#include "bootstrap/stalls.hpp"

namespace farandole {
namespace {

using namespace std::chrono_literals;
constexpr auto kLeaveTime = 3s;
constexpr auto kLauncherGrace = 2s;
constexpr std::size_t kVisitorsMax = 64;  // besides one per rank
constexpr std::size_t kReasonBytesMax = 2000;
constexpr std::string_view kStallWord = "stalled ";  // begins the flooded report of a stall

/// The read end of the launcher's pipe; the original stays open for a later session.
class LauncherPipe {
 public:
  explicit LauncherPipe(int fd) {
    if (fd < 0) return;
    fcntl(fd, F_SETFD, FD_CLOEXEC);
    pipe_ = Descriptor(fcntl(fd, F_DUPFD_CLOEXEC, 3));
  }
  void watch(PollSet& set) {
    slot_ = pipe_ ? set.add(pipe_.fd(), POLLIN) : PollSet::kNoSlot;
    if (kill_at_) set.wake_by(*kill_at_);
  }
  void close() { pipe_.close(); }
  void serve(const PollSet& set, const std::function<void()>& launcher_died) {
    if (pipe_ && set.ready(slot_) != 0) {
      char ignored[64];
      const ssize_t got = read(pipe_.fd(), ignored, sizeof ignored);
      const bool open = got > 0 || (got < 0 && (errno == EINTR || errno == EAGAIN));
      if (!open) {
        pipe_.close();
        kill_at_ = Clock::now() + kLauncherGrace;
        log(LogLevel::kError, "the launcher died; this process will be killed in 2 s.");
        if (launcher_died) launcher_died();
      }
    }
    if (kill_at_ && Clock::now() >= *kill_at_) kill(getpid(), SIGKILL);
  }

 private:
  Descriptor pipe_;
  std::size_t slot_ = PollSet::kNoSlot;
  std::optional<Clock::time_point> kill_at_;
};

/// Launchers may not know which ranks share a host. On a host whose members the launcher numbered
/// from 0 on without gaps, local ranks stay; on others the members are numbered in order of rank.
void settle_local_ranks(Members& members) {
  std::map<std::string, std::vector<Member*>> hosts;
  for (Member& member : members) hosts[member.host_id].push_back(&member);
  for (auto& [id, residents] : hosts) {
    std::map<int, int> claims;
    for (const Member* member : residents) ++claims[member->local_rank];
    const int last = static_cast<int>(residents.size()) - 1;
    const bool complete = claims.size() == residents.size() && claims.begin()->first == 0 &&
                          claims.rbegin()->first == last;
    if (complete) continue;
    for (std::size_t i = 0; i < residents.size(); ++i) {
      residents[i]->local_rank = static_cast<int>(i);
    }
  }
}

class LiveSession final : public Session {
 public:
  LiveSession(const Job& job, Roster roster, std::unique_ptr<Listener> listener, Events events,
              Bell bell)
      : job_(job),
        roster_(std::move(roster)),
        listener_(std::move(listener)),
        events_(std::move(events)),
        bell_(std::move(bell)),
        exchange_(job_, roster_),
        probes_(job_, roster_),
        stalls_(job_, probes_, [this](int peer, std::uint64_t bytes) { report(peer, bytes); }),
        links_(job_, roster_, probes_, relayed_),
        launcher_(job.launcher_fd) {
    const SignalsBlocked inherited;
    thread_ = std::thread([this] { run(); });
  }
  LiveSession(const LiveSession&) = delete;
  LiveSession& operator=(const LiveSession&) = delete;
  ~LiveSession() override { leave(""); }

  const Members& members() const override { return roster_.members; }

  Result<int> open(Rank peer, std::string_view purpose, Deadline deadline) override {
    return watched(peer, exchange_.open(peer, purpose, deadline, [this] { bell_.ring(); }));
  }
  Result<int> accept(Rank peer, std::string_view purpose, Deadline deadline) override {
    return watched(peer, exchange_.accept(peer, purpose, deadline));
  }
  void close(int fd) override {
    stalls_.remove(fd);
    ::close(fd);
  }

  void flood(std::string_view message) override {
    if (message.size() > kMessageBytesMax) {
      return log(LogLevel::kError, "a message of " + std::to_string(message.size()) +
                                       " bytes was not flooded; allowed are " +
                                       std::to_string(kMessageBytesMax) + ".");
    }
    const std::lock_guard lock(mutex_);
    messages_.emplace_back(message);
    bell_.ring();
  }

  Result<void> begin(Deadline deadline) override {
    {
      const std::lock_guard lock(mutex_);
      ready_ = true;
      bell_.ring();
    }
    return exchange_.await_start(deadline);
  }
  std::optional<Error> start_failure(Deadline deadline) override {
    return exchange_.start_failure(deadline);
  }

  void leave(std::string_view state) override {
    leave({state.size() <= kMessageBytesMax ? std::string(state) : std::string(), "shut down"});
  }
  void give_up(const Error& why) override {
    leave({"", "gave up while the job started: " + why.message.substr(0, kReasonBytesMax)});
  }

  std::uint64_t rejected_connections() const override {
    return listener_ ? listener_->rejected_connections() : 0;
  }

 private:
  struct Leave {
    std::string state, reason;
  };

  void leave(Leave leave) {
    if (getpid() != pid_) return abandon();
    const std::lock_guard joining(leave_mutex_);
    if (!thread_.joinable()) return;
    {
      const std::lock_guard lock(mutex_);
      leave_ = std::move(leave);
      bell_.ring();
    }
    exchange_.stop();
    thread_.join();
  }

  Result<int> watched(Rank peer, Result<int> socket) {
    if (socket) {
      stalls_.add(*socket, peer.value());
      bell_.ring();
    }
    return socket;
  }

  /// On the control thread: tells the other ranks and this rank's own Events.
  void report(int peer, std::uint64_t bytes) {
    const std::string what = std::to_string(bytes) + " bytes of data";
    if (events_.stalled) events_.stalled(job_.rank, Rank{peer}, what);
    Writer message;
    message.i32(job_.rank.value()).i32(peer).text(what);
    links_.flood(std::string(kStallWord) + message.bytes());
  }

  void hear(Rank from, std::string_view message) {
    if (!message.starts_with(kStallWord)) {
      if (events_.notice) events_.notice(from, message);
      return;
    }
    Reader reader(message.substr(kStallWord.size()));
    const Rank sender{reader.rank()}, receiver{reader.rank()};
    const std::string what = reader.text();
    if (reader.complete() && events_.stalled) events_.stalled(sender, receiver, what);
  }

  /// In a forked child there is no control thread, and its sockets are closed already.
  void abandon() {
    if (thread_.joinable()) thread_.detach();
  }

  void run() {
    std::optional<Deadline> end;
    while (!links_.closed() && !(end && end->passed())) {
      PollSet set;
      set.add(bell_.fd(), POLLIN);
      if (end) set.wake_by(end->when());
      launcher_.watch(set);
      if (listener_) listener_->watch(set);
      links_.watch(set);
      exchange_.watch(set);
      stalls_.watch(set);
      probes_.watch(set);
      set.wait();
      bell_.drain();
      probes_.serve(set);
      stalls_.check();
      links_.serve(set);
      if (listener_) listener_->serve(set, admission_);
      exchange_.serve(set);
      launcher_.serve(set, events_.launcher_died);
      if (take_requests() && !end) end = Deadline::after(kLeaveTime);
    }
    links_.close();
    exchange_.close();
    launcher_.close();
    if (listener_) listener_->close();
  }

  /// True once this rank is to leave.
  bool take_requests() {
    std::vector<std::string> messages;
    std::optional<Leave> leave;
    bool ready = false;
    {
      const std::lock_guard lock(mutex_);
      messages.swap(messages_);
      leave = leave_;
      ready = ready_;
    }
    for (const std::string& message : messages) links_.flood(message);
    if (ready) links_.ready();
    if (leave) links_.leave(leave->state, leave->reason);
    return leave.has_value();
  }

  Verdict admit(const Identity& identity) {
    if (identity.purpose == Purpose::kRendezvous) {
      if (job_.rank != Rank{0}) return Verdict::kNotNow;
      if (identity.job != job_.id) return Verdict::kAnotherJob;
      // A rank that has left may be back for a session for which this process is not ready yet.
      const bool back = links_.leaving() || links_.left(identity.rank);
      return back ? Verdict::kNotNow : Verdict::kStarted;
    }
    if (identity.job != roster_.run) return Verdict::kAnotherJob;
    if (identity.purpose == Purpose::kProbe) return Verdict::kNotNow;
    return identity.purpose == Purpose::kControl ? links_.admit(identity.rank)
                                                 : exchange_.admit(identity.rank);
  }

  void enter(const Identity& identity, Descriptor socket) {
    if (identity.purpose == Purpose::kControl) {
      links_.enter(identity.rank, std::move(socket));
    } else {
      exchange_.enter(identity, std::move(socket));
    }
  }

  const pid_t pid_ = getpid();
  const Job job_;
  const Roster roster_;
  const std::unique_ptr<Listener> listener_;  // none in a job of one
  const Events events_;
  const Events relayed_{[this](const Departure& departure) {
                          exchange_.departed(departure);
                          if (events_.departed) events_.departed(departure);
                        },
                        [this](Rank from, std::string_view message) { hear(from, message); },
                        {},
                        [this] {
                          exchange_.started();
                          if (events_.started) events_.started();
                        },
                        events_.stalled};
  const Listener::Admission admission_{
      [this](const Identity& identity) { return admit(identity); },
      [this](const Identity& identity, Descriptor socket) { enter(identity, std::move(socket)); }};
  Bell bell_;
  Exchange exchange_;
  Probes probes_;
  Stalls stalls_;
  Links links_;
  LauncherPipe launcher_;

  std::mutex mutex_;
  std::vector<std::string> messages_;  // to flood; guarded by mutex_, as the next two
  bool ready_ = false;                 // to begin
  std::optional<Leave> leave_;         // set once this rank is to leave
  std::mutex leave_mutex_;
  std::thread thread_;
};

Registration introduce(const Job& job, std::map<std::string, std::string> record) {
  Registration self;
  self.member =
      Member{job.rank, job.local_rank, job.host, job.host_id, getpid(), std::move(record)};
  self.size = job.size;
  return self;
}

/// This process's listener, and the roster that all ranks have.
struct Seat {
  std::unique_ptr<Listener> listener;
  Roster roster;
};

/// Meets the other ranks. The name and the secret that come from the store go into `job`.
Result<Seat> meet(Job& job, Registration self) {
  const Deadline deadline = Deadline::after(job.start_timeout);
  const bool first = job.rank == Rank{0};
  std::vector<Endpoint> meeting;
  if (job.store && !first) {
    auto found = find_meeting(job, deadline);
    if (!found) return found.error();
    meeting = *std::move(found);
  }
  auto socket = open_listener(job, self.listener);
  if (!socket) return socket.error();
  auto listener = std::make_unique<Listener>(*std::move(socket), job.secret,
                                             kVisitorsMax + static_cast<std::size_t>(job.size));
  if (job.store && first) {
    if (auto left = publish_meeting(job, self.listener); !left) return left.error();
  }
  std::set<int> absent;
  auto met = rendezvous(job, std::move(meeting), *listener, std::move(self), deadline, absent);
  if (met) return Seat{std::move(listener), *std::move(met)};
  tell_latecomers(job, std::move(listener), met.error(), std::move(absent));
  return met.error();
}

Result<Seat> meet_as_rank_0(Job& job, Registration self) {
  forget_latecomers(job);
  if (!job.store) return meet(job, std::move(self));
  if (auto opened = open_meeting(job); !opened) return opened.error();
  auto met = meet(job, std::move(self));
  if (!met) cancel_meeting(job, met.error());
  return met;
}

}  // namespace

Result<std::unique_ptr<Session>> Session::start(const Job& given,
                                                std::map<std::string, std::string> record,
                                                Events events) {
  if (auto good = check(given); !good) return good.error();
  if (given.size > 1 && given.secret.empty() && !secret_in_store(given)) {
    return invalid("the job has no secret; set FARANDOLE_SECRET.");
  }
  Job job = given;
  Bell bell;
  if (!bell) return Error{ErrorKind::kInternal, "the system gave no event descriptor."};
  auto self = introduce(job, std::move(record));
  Seat seat{nullptr, {"", {self.member}, {Endpoint{}}}};
  if (job.size > 1) {
    auto met =
        job.rank == Rank{0} ? meet_as_rank_0(job, std::move(self)) : meet(job, std::move(self));
    if (!met) return met.error();
    seat = *std::move(met);
  }
  job.store.reset();  // not needed any more
  settle_local_ranks(seat.roster.members);
  return std::unique_ptr<Session>(std::make_unique<LiveSession>(
      job, std::move(seat.roster), std::move(seat.listener), std::move(events), std::move(bell)));
}

}  // namespace farandole
