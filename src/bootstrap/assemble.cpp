// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
// Rank 0's side of the rendezvous.
#include <chrono>
#include <list>
#include <map>
#include <optional>
#include <utility>

#include "bootstrap/descriptor_limit.hpp"
#include "bootstrap/rendezvous.hpp"
#include "bootstrap/secret.hpp"

namespace farandole {
namespace {

using namespace std::chrono_literals;
constexpr auto kFailureTime = 1s;  // to tell the ranks that came
// A rank that proved itself and hung up may have timed out and connects again at once, or is dead.
constexpr auto kReturnTime = 1s;

/// A process that has proved itself and may have registered.
struct Guest {
  Rank rank;  // from its handshake; its registration must agree
  Channel channel;
  FrameReader frames{kRegistrationBytesMax};
  std::optional<Registration> registration = std::nullopt;
  bool done = false;
};

class Assembly {
 public:
  Assembly(const Job& job, Listener& listener, Registration self)
      : job_(job), listener_(listener), present_(static_cast<std::size_t>(job.size)) {
    present_[0] = std::move(self);
  }

  Result<Roster> run(Deadline deadline) {
    while (!failure_ && arrived_ < job_.size) {
      if (deadline.passed()) {
        failure_ = missing();
      } else {
        turn(deadline);
      }
    }
    auto roster = make_roster();
    if (!failure_ && !roster) failure_ = roster.error();
    if (failure_) {
      tell(encode_frame(static_cast<std::uint8_t>(RendezvousFrame::kFailure),
                        encode_failure(*failure_)),
           Deadline::after(kFailureTime));
      return *failure_;
    }
    tell(encode_frame(static_cast<std::uint8_t>(RendezvousFrame::kRoster), encode(*roster)),
         deadline);
    return roster;
  }

  std::set<int> absent() const {
    std::set<int> ranks;
    for (int rank = 0; rank < job_.size; ++rank) {
      const bool dead = failure_ && failure_->culprit && failure_->culprit->rank == rank;
      if (!dead && !present_[static_cast<std::size_t>(rank)]) ranks.insert(rank);
    }
    return ranks;
  }

 private:
  void turn(Deadline deadline) {
    PollSet set;
    set.wake_by(deadline.when());
    listener_.watch(set);
    for (Guest& guest : guests_) guest.channel.watch(set);
    for (const auto& [rank, lost] : vanished_) set.wake_by(lost.at + kReturnTime);
    set.wait();
    for (Guest& guest : guests_) {
      if (guest.channel.ready(set) != 0) listen_to(guest);
    }
    listener_.serve(set, admission());
    if (listener_.exhausted()) fail(descriptor_error("rank 0, to which all others connect,"));
    guests_.remove_if([](const Guest& guest) { return guest.done; });
    for (const auto& [rank, lost] : vanished_) {
      if (Clock::now() < lost.at + kReturnTime) continue;
      fail({ErrorKind::kRankFailed,
            "rank " + std::to_string(rank) + " at " + lost.host +
                " went away while the job started.",
            ProcessName{rank, lost.host, 0}});
    }
  }

  Listener::Admission admission() {
    return {[this](const Identity& identity) {
              if (identity.purpose != Purpose::kRendezvous) return Verdict::kNotNow;
              return identity.job == job_.id ? Verdict::kWelcome : Verdict::kAnotherJob;
            },
            [this](const Identity& identity, Descriptor socket) {
              note_way(socket.fd());
              vanished_.erase(identity.rank);
              guests_.push_back(Guest{Rank{identity.rank}, Channel(std::move(socket))});
            }};
  }

  /// Notes the address by which others reach this host; one that is not loopback is best.
  void note_way(int socket) {
    const Endpoint own = local_endpoint(socket);
    const auto address = numeric_address(own);
    if (address && (reached_at_.empty() || !is_loopback(*address))) reached_at_ = own.host;
  }

  void listen_to(Guest& guest) {
    guest.frames.feed(guest.channel.read(kRegistrationBytesMax));
    guest.channel.flush();
    if (auto frame = guest.frames.next()) {
      auto registration = decode_registration(frame->payload);
      const bool valid = registration && !guest.registration &&
                         registration->member.rank == guest.rank &&
                         frame->type == static_cast<std::uint8_t>(RendezvousFrame::kRegister);
      if (valid) {
        enter(guest, *std::move(registration));
      } else {
        guest.done = true;
      }
    }
    if (guest.channel.ended()) lose(guest);
    if (guest.frames.broken()) guest.done = true;
  }

  void enter(Guest& guest, Registration registration) {
    const std::string name = describe(registration.member);
    const int rank = guest.rank.value();
    if (registration.size != job_.size) {
      fail({ErrorKind::kInvalidArgument, "the ranks disagree on the size of the job: rank 0 has " +
                                             std::to_string(job_.size) + ", " + name + " has " +
                                             std::to_string(registration.size) + "."});
    } else if (rank < 0 || rank >= job_.size) {
      fail({ErrorKind::kInvalidArgument, name + " came to a job of " + std::to_string(job_.size) +
                                             " ranks; allowed is 0 to " +
                                             std::to_string(job_.size - 1) + "."});
    } else if (auto& place = present_[guest.rank.value()]; !place) {
      ++arrived_;
      place = registration;
    } else {
      fail({ErrorKind::kInvalidArgument,
            "two processes came as one rank: " + describe(place->member) + " and " + name + "."});
    }
    guest.registration = std::move(registration);
  }

  /// A rank that registered and hung up has died; an earlier one gets kReturnTime to come back.
  void lose(Guest& guest) {
    guest.done = true;
    const int rank = guest.rank.value();
    if (!guest.registration) {
      const bool awaited =
          rank > 0 && rank < job_.size && !present_[static_cast<std::size_t>(rank)];
      if (awaited) vanished_[rank] = {Clock::now(), peer_endpoint(guest.channel.fd()).host};
      return;
    }
    const Member& member = guest.registration->member;
    fail({ErrorKind::kRankFailed, describe(member) + " went away while the job started.",
          ProcessName{member.rank.value(), member.host, member.pid}});
  }

  void fail(Error error) {
    if (!failure_) failure_ = std::move(error);
  }

  Error missing() const {
    std::vector<int> absent;
    for (int rank = 0; rank < job_.size; ++rank) {
      if (!present_[static_cast<std::size_t>(rank)]) absent.push_back(rank);
    }
    return {ErrorKind::kTimedOut,
            describe(absent) + " of " + std::to_string(job_.size) + " did not come to rank 0 at " +
                text(Endpoint{job_.address, local_endpoint(listener_.fd()).port}) + " within " +
                describe(job_.start_timeout) + "." + loopback_hint(job_)};
  }

  Result<Roster> make_roster() const {
    auto run = random_bytes(16);
    if (!run) return run.error();
    Roster roster{*std::move(run), {}, {}};
    for (const auto& registration : present_) {
      if (!registration) return Error{ErrorKind::kInternal, "the roster is incomplete."};
      roster.members.push_back(registration->member);
      roster.listeners.push_back(registration->listener);
      const bool neighbour = registration->member.rank != job_.rank;
      Endpoint& listener = roster.listeners.back();
      if (neighbour && listener.host.empty()) listener.host = reached_at_;
    }
    return roster;
  }

  /// Sends `bytes` to every guest and waits until each has hung up or its socket has taken all.
  void tell(const std::string& bytes, Deadline deadline) {
    for (Guest& guest : guests_) guest.channel.send(bytes);
    for (;;) {
      guests_.remove_if([](const Guest& g) { return g.channel.ended() || !g.channel.pending(); });
      if (guests_.empty() || deadline.passed()) return;
      PollSet set;
      set.wake_by(deadline.when());
      for (Guest& guest : guests_) guest.channel.watch(set);
      set.wait();
      for (Guest& guest : guests_) {
        if (guest.channel.ready(set) == 0) continue;
        guest.channel.flush();
        (void)guest.channel.read(kRegistrationBytesMax);
      }
    }
  }

  const Job& job_;
  Listener& listener_;
  std::vector<std::optional<Registration>> present_;  // index = rank
  int arrived_ = 1;
  std::list<Guest> guests_;
  std::string reached_at_;  // an address of this host
  struct Vanished {
    Clock::time_point at;
    std::string host;
  };
  std::map<int, Vanished> vanished_;  // by rank, of those that had not registered
  std::optional<Error> failure_;
};

}  // namespace

Result<Roster> assemble(const Job& job, Listener& listener, Registration self, Deadline deadline,
                        std::set<int>& absent) {
  Assembly assembly(job, listener, std::move(self));
  auto roster = assembly.run(deadline);
  if (!roster) absent = assembly.absent();
  return roster;
}

}  // namespace farandole
