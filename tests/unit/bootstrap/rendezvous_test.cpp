// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
// How a job comes together, and how it does not.
#include "bootstrap/rendezvous.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <thread>

#include "bootstrap/dial.hpp"
#include "bootstrap/latecomers.hpp"
#include "bootstrap/secret.hpp"
#include "unit/bootstrap/intruders.hpp"
#include "unit/bootstrap/ranks.hpp"

namespace farandole::test {
namespace {

/// `count` ports in a row that were free a moment ago. Below those that the kernel hands out
/// (ip_local_port_range), and others in each process: tests that run beside this one take none.
std::uint16_t free_ports(int count) {
  constexpr int kFirst = 10000, kEach = 16, kProcesses = 1024;
  static int next = 0;
  const int process = kFirst + static_cast<int>(::getpid() % kProcesses) * kEach;
  for (;;) {
    const int first = process + next;
    next = (next + 1) % (kEach - count + 1);
    bool free = true;
    for (int port = first; port < first + count && free; ++port) {
      free = static_cast<bool>(listen_at(Endpoint{"127.0.0.1", static_cast<std::uint16_t>(port)}));
    }
    if (free) return static_cast<std::uint16_t>(first);
  }
}

Job job_at(int rank, int size, std::uint16_t port, int port_count) {
  Job job = local_job(rank, size, Descriptor());
  job.listen_fd = -1;
  job.port = port;
  job.port_count = port_count;
  return job;
}

/// Starts each job on a thread of its own and returns what came of it, in order.
struct Outcomes {
  explicit Outcomes(const std::vector<Job>& jobs) : errors(jobs.size()), sessions(jobs.size()) {
    on_threads(static_cast<int>(jobs.size()), [&](int index) {
      const auto i = static_cast<std::size_t>(index);
      auto session = Session::start(jobs[i], {}, {});
      if (session) {
        sessions[i] = *std::move(session);
      } else {
        errors[i] = session.error();
      }
    });
  }
  ~Outcomes() {
    on_threads(static_cast<int>(sessions.size()),
               [&](int index) { sessions[static_cast<std::size_t>(index)].reset(); });
  }
  bool all_started() const {
    for (const auto& session : sessions) {
      if (!session) return false;
    }
    return true;
  }
  std::vector<Error> errors;
  std::vector<std::unique_ptr<Session>> sessions;
};

// Goal: rank 0 may come last, whether its port exists already or not.
// Method: the others have begun to call, as seen by a plain socket in its place or by the
// launcher's backlog, before rank 0 starts.
TEST(Rendezvous, Rank0MayComeLast) {
  for (const bool launched : {false, true}) {
    const Descriptor socket = launcher_socket();
    const std::uint16_t port = local_endpoint(socket.fd()).port;
    Descriptor early = launched ? Descriptor() : Descriptor(dup(socket.fd()));
    std::vector<Job> jobs;
    for (int rank = 0; rank < 3; ++rank) jobs.push_back(job_at(rank, 3, port, 1));
    jobs[0].listen_fd = socket.fd();
    std::vector<std::unique_ptr<Session>> sessions(3);
    on_threads(3, [&](int rank) {
      if (rank == 0) {
        // Ready as soon as somebody has called.
        pollfd called{socket.fd(), POLLIN, 0};
        ASSERT_EQ(poll(&called, 1, 60'000), 1);
        if (!launched) accept_connection(socket.fd());
      }
      auto session = Session::start(jobs[static_cast<std::size_t>(rank)], {}, {});
      ASSERT_TRUE(session) << session.error().message;
      sessions[static_cast<std::size_t>(rank)] = *std::move(session);
    });
    on_threads(3, [&](int rank) { sessions[static_cast<std::size_t>(rank)].reset(); });
  }
}

// Goal: who did not come is named to everybody who did.
// Method: leave out ranks 2 and 4 of five.
TEST(Rendezvous, MissingRanksAreNamed) {
  const Descriptor socket = launcher_socket();
  std::vector<Job> jobs;
  for (const int rank : {0, 1, 3}) {
    jobs.push_back(local_job(rank, 5, socket));
    jobs.back().start_timeout = rank == 0 ? 1s : std::chrono::milliseconds(kPatience);
  }
  const Outcomes outcomes(jobs);
  for (const Error& error : outcomes.errors) {
    EXPECT_EQ(error.kind, ErrorKind::kTimedOut);
    EXPECT_NE(error.message.find("ranks 2, 4 of 5 did not come"), std::string::npos)
        << error.message;
    EXPECT_NE(error.message.find("within 1 s"), std::string::npos) << error.message;
  }
}

// Goal: without rank 0 the others say where they looked.
// Method: a port where nobody listens, and one where somebody without the secret does.
TEST(Rendezvous, MissingRank0IsReported) {
  Job job = job_at(1, 2, free_ports(2), 2);
  job.start_timeout = 300ms;
  const auto session = Session::start(job, {}, {});
  ASSERT_FALSE(session);
  EXPECT_EQ(session.error().kind, ErrorKind::kTimedOut);
  EXPECT_NE(session.error().message.find("rank 1 did not find rank 0 of job 'test'"),
            std::string::npos);
  EXPECT_NE(session.error().message.find("ports " + std::to_string(job.port) + " to"),
            std::string::npos);
}

// Goal: two processes that claim one rank, sizes that differ, and a rank beyond the size end the
// start for all, with both named; and so does a nonsensical job before it begins.
// Method: one case each.
TEST(Rendezvous, ContradictionsEndTheStart) {
  const auto expect_all = [](const std::vector<Job>& jobs, const std::vector<std::string>& parts) {
    const Outcomes outcomes(jobs);
    for (const Error& error : outcomes.errors) {
      EXPECT_EQ(error.kind, ErrorKind::kInvalidArgument);
      for (const std::string& part : parts) {
        EXPECT_NE(error.message.find(part), std::string::npos) << error.message;
      }
    }
  };
  const Descriptor twice = launcher_socket(), unlike = launcher_socket();
  const Descriptor socket = launcher_socket();
  expect_all({local_job(0, 3, twice), local_job(1, 3, twice), local_job(1, 3, twice)},
             {"two processes came as one rank", "rank 1 (host"});
  expect_all({local_job(0, 3, unlike), local_job(1, 4, unlike)}, {"rank 0 has 3", "has 4"});
  expect_all({local_job(0, 2, socket), local_job(2, 3, socket)}, {"rank 0 has 2", "rank 2 (host"});
  forget_latecomers(local_job(0, 2, socket));

  Job beyond = local_job(2, 2, socket);
  EXPECT_EQ(Session::start(beyond, {}, {}).error().kind, ErrorKind::kInvalidArgument);
  Job secretless = local_job(0, 2, socket);
  secretless.secret = Secret();
  EXPECT_EQ(Session::start(secretless, {}, {}).error().kind, ErrorKind::kInvalidArgument);
  Job portless = local_job(1, 2, socket);
  portless.port = 0;
  EXPECT_EQ(Session::start(portless, {}, {}).error().kind, ErrorKind::kInvalidArgument);
  Job odd = local_job(0, 2, socket);
  odd.listen_fd = 0;  // standard input is no listening socket
  EXPECT_NE(Session::start(odd, {}, {}).error().message.find("FARANDOLE_LISTEN_FD"),
            std::string::npos);
  Job elsewhere = local_job(1, 2, socket);
  elsewhere.interface = "no such interface";
  EXPECT_NE(Session::start(elsewhere, {}, {}).error().message.find("lo"), std::string::npos);
}

// Goal: ports that others hold are passed over: somebody who never answers, somebody who
// answers nonsense, and another job of the same user.
// Method: put each in the way of a job with one port more.
TEST(Rendezvous, TakenPortsArePassedOver) {
  const std::uint16_t port = free_ports(4);
  const auto at = [port](int i) {
    return Endpoint{"127.0.0.1", static_cast<std::uint16_t>(port + i)};
  };
  auto silent = listen_at(at(0));
  auto babbler = listen_at(at(1));
  ASSERT_TRUE(silent && babbler);
  std::atomic<bool> over = false;
  std::thread babble([&] {
    while (!over) {
      pollfd called{babbler->fd(), POLLIN, 0};
      if (poll(&called, 1, 10) != 1) continue;
      Descriptor guest = accept_connection(babbler->fd());
      const std::string nonsense(200, 'x');
      (void)!send(guest.fd(), nonsense.data(), nonsense.size(), MSG_NOSIGNAL);
    }
  });
  {
    const Outcomes first({job_at(0, 2, port + 2, 1), job_at(1, 2, port + 2, 1)});
    ASSERT_TRUE(first.all_started());
    std::vector<Job> jobs = {job_at(0, 3, port, 4), job_at(1, 3, port, 4), job_at(2, 3, port, 4)};
    for (Job& job : jobs) job.id = "another";
    const Outcomes second(jobs);
    for (const Error& error : second.errors) EXPECT_EQ(error.message, "");
    EXPECT_TRUE(second.all_started());
    // A job whose only port is taken says so.
    const Outcomes third({job_at(0, 2, port, 1)});
    EXPECT_EQ(third.errors[0].kind, ErrorKind::kInvalidArgument);
    EXPECT_NE(third.errors[0].message.find("taken"), std::string::npos);
  }
  over = true;
  babble.join();
}

// Goal: two jobs of one user that start at the same time, with the same ports to choose from, do
// not mix.
// Method: all four at once, ten times, so that some knock at the wrong admission.
TEST(Rendezvous, TwoJobsStartSideBySide) {
  for (int round = 0; round < 10; ++round) {
    const std::uint16_t port = free_ports(2);
    std::vector<Job> jobs;
    for (const char* id : {"one", "two"}) {
      for (const int rank : {0, 1}) jobs.push_back(job_at(rank, 2, port, 2));
      jobs[jobs.size() - 2].id = jobs.back().id = id;
    }
    const Outcomes outcomes(jobs);
    for (const Error& error : outcomes.errors) EXPECT_EQ(error.message, "");
  }
}

// Goal: a process that comes to a job which has started already, or with the wrong secret, is
// told why and changes nothing.
// Method: late duplicates of a rank; look at the others' counts and messages.
TEST(Rendezvous, LateAndWrongProcessesAreTurnedAway) {
  Ranks ranks(2);
  ASSERT_EQ(ranks.errors(), "");
  Job late = local_job(1, 2, ranks.socket);
  const auto duplicate = Session::start(late, {}, {});
  ASSERT_FALSE(duplicate);
  EXPECT_EQ(duplicate.error().kind, ErrorKind::kInvalidArgument);
  EXPECT_NE(duplicate.error().message.find("has started already"), std::string::npos);

  late.secret = Secret("a guess");
  late.start_timeout = 300ms;
  const auto outsider = Session::start(late, {}, {});
  ASSERT_FALSE(outsider);
  EXPECT_EQ(outsider.error().kind, ErrorKind::kTimedOut);
  EXPECT_NE(outsider.error().message.find("does not know this job's secret"), std::string::npos);

  late.secret = local_job(1, 2, ranks.socket).secret;
  late.id = "another";
  const auto lost = Session::start(late, {}, {});
  ASSERT_FALSE(lost);
  EXPECT_NE(lost.error().message.find("belongs to another job"), std::string::npos);
  ranks[1].flood("still here");
  EXPECT_TRUE(ranks.ear(0).wait_for([](const Ear& ear) { return ear.noticed.size() == 1; }));
  ranks.leave_all();
  EXPECT_GE(ranks[0].rejected_connections(), 1u);
}

/// Comes to rank 0 as rank 1 of three, by hand, and dies: once it has registered or before.
std::thread short_life(const Job& job, bool registers) {
  return std::thread([job, registers] {
    auto address = numeric_address(Endpoint{"127.0.0.1", job.port});
    Dial dial(*address, job.secret, Identity{Purpose::kRendezvous, 1, job.id, ""},
              Deadline::after(kPatience));
    while (dial.outcome() == Dial::Outcome::kWorking) {
      PollSet set;
      dial.watch(set);
      set.wait();
      dial.serve(set);
    }
    ASSERT_TRUE(dial.answered(Verdict::kWelcome));
    if (!registers) return;
    Channel channel(dial.take());
    Registration self;
    self.member = Member{Rank{1}, 1, "host", "id", 4711, {}};
    self.size = 3;
    channel.send(encode_frame(static_cast<std::uint8_t>(RendezvousFrame::kRegister), encode(self)));
  });
}

// Goal: a member that proves itself and then dies ends the start for the others, whether it had
// registered or not, and also for one that comes only when rank 0 has given up.
// Method: rank 1 hangs up early; then start rank 2, which would look for rank 0 for a minute.
TEST(Rendezvous, AMemberThatDiesMeanwhileIsNamed) {
  for (const bool registers : {true, false}) {
    const Descriptor socket = launcher_socket();
    std::thread member = short_life(local_job(1, 3, socket), registers);
    std::vector<Error> errors = Outcomes({local_job(0, 3, socket)}).errors;
    member.join();
    errors.push_back(Outcomes({local_job(2, 3, socket)}).errors[0]);
    for (const Error& error : errors) {
      EXPECT_EQ(error.kind, ErrorKind::kRankFailed) << error.message;
      ASSERT_TRUE(error.culprit);
      EXPECT_EQ(error.culprit->rank, 1);
      EXPECT_EQ(error.culprit->pid, registers ? 4711 : 0);
    }
  }
}

// Goal: local ranks that do not number a host's members are settled; others are kept.
// Method: three ranks that all claim to be the first of this host; three that leave numbers out;
// three in reverse order.
TEST(Rendezvous, LocalRanksAreDistinctOnAHost) {
  Ranks same(3, [](Job& job) { job.local_rank = 0; });
  Ranks sparse(3, [](Job& job) { job.local_rank = 2 * job.rank.value(); });
  Ranks reversed(3, [](Job& job) { job.local_rank = 2 - job.rank.value(); });
  ASSERT_EQ(same.errors() + sparse.errors() + reversed.errors(), "");
  for (int rank = 0; rank < 3; ++rank) {
    const auto index = static_cast<std::size_t>(rank);
    EXPECT_EQ(same[1].members()[index].local_rank, rank);
    EXPECT_EQ(sparse[1].members()[index].local_rank, rank);
    EXPECT_EQ(reversed[1].members()[index].local_rank, 2 - rank);
  }
}

// Goal: connections from outside change nothing, while the job starts and while it runs.
// Method: 10,000 pieces of nonsense from two threads; ranks come one by one meanwhile, then
// open data sockets and flood messages. The seed is printed.
TEST(Rendezvous, StrangersChangeNothing) {
  constexpr int kSize = 4;
  constexpr int kIntrusions = 10'000;
  const unsigned seed = std::random_device()();
  SCOPED_TRACE("seed " + std::to_string(seed));
  const Descriptor socket = launcher_socket();
  const std::uint16_t port = local_endpoint(socket.fd()).port;
  std::atomic<int> intrusions = 0;
  std::vector<std::thread> crowd;
  for (unsigned i = 0; i < 2; ++i) {
    crowd.emplace_back([&, i] {
      std::mt19937 random(seed + i);
      while (intrusions.fetch_add(1) < kIntrusions) intrude(port, nonsense(random));
    });
  }
  std::vector<Job> jobs;
  for (int rank = 0; rank < kSize; ++rank) jobs.push_back(local_job(rank, kSize, socket));
  {
    Outcomes outcomes(jobs);
    for (const Error& error : outcomes.errors) EXPECT_EQ(error.message, "");
    ASSERT_TRUE(outcomes.all_started());
    for (int round = 0; intrusions < kIntrusions; ++round) {
      const std::string purpose = std::to_string(round);
      on_threads(2, [&](int rank) {
        Session& session = *outcomes.sessions[static_cast<std::size_t>(rank)];
        const Deadline deadline = Deadline::after(kPatience);
        auto fd = rank == 1 ? session.open(Rank{0}, purpose, deadline)
                            : session.accept(Rank{1}, purpose, deadline);
        ASSERT_TRUE(fd) << fd.error().message;
        Descriptor(*fd).close();
      });
    }
    for (std::thread& one : crowd) one.join();
    EXPECT_GT(outcomes.sessions[0]->rejected_connections(), 100u);
  }
}

}  // namespace
}  // namespace farandole::test
