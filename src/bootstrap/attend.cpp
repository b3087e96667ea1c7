// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
// The rendezvous as every rank but 0 sees it.
#include <chrono>
#include <optional>
#include <utility>

#include "bootstrap/descriptor_limit.hpp"
#include "bootstrap/dial.hpp"
#include "bootstrap/rendezvous.hpp"

namespace farandole {
namespace {

using namespace std::chrono_literals;
constexpr auto kMeetTime = 2s;  // a listener that says nothing costs this
constexpr auto kRoundPause = 50ms;
// An earlier session that this rank has left may be the one that says that the job has started, so
// only an answer that lasts this long counts.
constexpr auto kStartedTime = 1s;
constexpr auto kPatience = 5s;  // more than rank 0 waits: it can name who is missing

class Attendance {
 public:
  Attendance(const Job& job, std::vector<Endpoint> meeting, Listener& listener, Registration self)
      : job_(job), meeting_(std::move(meeting)), listener_(listener), self_(std::move(self)) {}

  Result<Roster> run(Deadline deadline) {
    auto socket = find_rank_0(deadline);
    if (!socket) return socket.error();
    return register_at(Channel(*std::move(socket)),
                       Deadline::after(job_.start_timeout + kPatience));
  }

 private:
  Result<Descriptor> find_rank_0(Deadline deadline) {
    std::string last = "nobody listens there";
    while (!deadline.passed()) {
      for (const Endpoint& place : places()) {
        const auto addresses = resolve(place.host);
        if (!addresses) last = addresses.error().message;
        for (std::size_t i = 0; addresses && i < addresses->size() && !deadline.passed(); ++i) {
          const Address address = with_port((*addresses)[i], place.port);
          auto socket = try_at(address, place.port, deadline, last);
          if (!socket || *socket) return socket;
        }
      }
      serve_until(Deadline::after(kRoundPause));
    }
    return Error{ErrorKind::kTimedOut, "rank " + std::to_string(job_.rank.value()) +
                                           " did not find rank 0 of job '" + job_.id + "' at " +
                                           where() + " within " + describe(job_.start_timeout) +
                                           "; " + last + "." + loopback_hint(job_)};
  }

  std::vector<Endpoint> places() const {
    if (!meeting_.empty()) return meeting_;
    std::vector<Endpoint> all;
    for (int i = 0; i < job_.port_count; ++i) {
      all.push_back({job_.address, static_cast<std::uint16_t>(job_.port + i)});
    }
    return all;
  }

  std::string where() const {
    std::string list;
    for (const Endpoint& place : meeting_) list += (list.empty() ? "" : ", ") + text(place);
    if (!list.empty()) return list;
    if (job_.port_count == 1) return job_.address + ", port " + std::to_string(job_.port);
    return job_.address + ", ports " + std::to_string(job_.port) + " to " +
           std::to_string(job_.port + job_.port_count - 1);
  }

  /// The socket to rank 0; an empty one if rank 0 is not there, with the reason in `why`.
  Result<Descriptor> try_at(const Address& address, std::uint16_t port, Deadline deadline,
                            std::string& why) {
    const Deadline until = Deadline::after(kMeetTime);
    Dial dial(address, job_.secret, Identity{Purpose::kRendezvous, job_.rank.value(), job_.id, ""},
              until.when() < deadline.when() ? until : deadline);
    while (dial.outcome() == Dial::Outcome::kWorking)
      turn([&](PollSet& s) { dial.watch(s); }, [&](PollSet& s) { dial.serve(s); });
    const std::string where = "port " + std::to_string(port);
    switch (dial.outcome()) {
      case Dial::Outcome::kWorking:
      case Dial::Outcome::kRefused:
        break;
      case Dial::Outcome::kNoSocket:
        return descriptor_error("a connection to rank 0");
      case Dial::Outcome::kUnreachable:
        why = where + " does not answer";
        break;
      case Dial::Outcome::kOfAnotherJob:
        why = where + " does not know this job's secret";
        break;
      case Dial::Outcome::kAnswered:
        if (dial.verdict() == Verdict::kWelcome) return dial.take();
        if (dial.verdict() == Verdict::kAnotherJob) why = where + " belongs to another job";
        if (dial.verdict() == Verdict::kNotNow) {
          why = where + " is not ready";
          started_at_.reset();
        }
        if (dial.verdict() == Verdict::kStarted) {
          why = where + " has started the job already";
          if (!started_at_) started_at_ = Clock::now();
          if (Clock::now() >= *started_at_ + kStartedTime) return started();
        }
    }
    return Descriptor();
  }

  Error started() const {
    return {ErrorKind::kInvalidArgument,
            "job '" + job_.id + "' has started already, with another process as rank " +
                std::to_string(job_.rank.value()) + "."};
  }

  Result<Roster> register_at(Channel channel, Deadline deadline) {
    const Endpoint rank_0 = peer_endpoint(channel.fd());
    set_own_host(channel.fd());
    channel.send(
        encode_frame(static_cast<std::uint8_t>(RendezvousFrame::kRegister), encode(self_)));
    FrameReader frames(kRosterBytesMax);
    while (!deadline.passed()) {
      turn([&](PollSet& s) { s.wake_by(deadline.when()), channel.watch(s); },
           [&](PollSet& s) {
             if (channel.ready(s) == 0) return;
             channel.flush();
             frames.feed(channel.read(1 << 20));
           });
      if (auto frame = frames.next()) return understand(*frame, rank_0);
      if (frames.broken() || channel.ended()) break;
    }
    return Error{ErrorKind::kRankFailed,
                 std::string("rank 0 at ") + text(rank_0) +
                     (channel.ended() ? " went away while the job started."
                                      : " did not answer while the job started."),
                 ProcessName{0, rank_0.host, 0}};
  }

  /// Other ranks reach this process at the address from which it connects to rank 0. If that is a
  /// loopback address, rank 0 knows better how its host is reached.
  void set_own_host(int socket) {
    if (!self_.listener.host.empty()) return;
    const Endpoint own = local_endpoint(socket);
    const auto address = numeric_address(own);
    if (address && !is_loopback(*address)) self_.listener.host = own.host;
  }

  Result<Roster> understand(const Frame& frame, const Endpoint& rank_0) {
    if (frame.type == static_cast<std::uint8_t>(RendezvousFrame::kFailure)) {
      return decode_failure(frame.payload);
    }
    auto roster = decode_roster(frame.payload);
    if (!roster) return roster.error();
    if (roster->members.size() != static_cast<std::size_t>(job_.size)) {
      return Error{ErrorKind::kInternal, "rank 0 sent a table of another size."};
    }
    // Rank 0 itself may not know how it is reached.
    if (roster->listeners[0].host.empty()) roster->listeners[0] = rank_0;
    return roster;
  }

  /// One turn of the loop; this process's own listener asks early visitors to try again later.
  template <class Watch, class Serve>
  void turn(Watch watch, Serve serve) {
    PollSet set;
    watch(set);
    listener_.watch(set);
    set.wait();
    serve(set);
    listener_.serve(set, {[](const Identity&) { return Verdict::kNotNow; },
                          [](const Identity&, Descriptor) {}});
  }

  void serve_until(Deadline deadline) {
    while (!deadline.passed()) {
      turn([&](PollSet& set) { set.wake_by(deadline.when()); }, [](PollSet&) {});
    }
  }

  const Job& job_;
  const std::vector<Endpoint> meeting_;
  Listener& listener_;
  Registration self_;
  std::optional<Clock::time_point> started_at_;  // since when listeners answer kStarted
};

}  // namespace

Result<Roster> attend(const Job& job, std::vector<Endpoint> meeting, Listener& listener,
                      Registration self, Deadline deadline) {
  return Attendance(job, std::move(meeting), listener, std::move(self)).run(deadline);
}

}  // namespace farandole
