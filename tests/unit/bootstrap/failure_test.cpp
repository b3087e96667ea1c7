// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
// Ranks in processes of their own, killed, stopped and sent away.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <random>
#include <set>

#include "unit/bootstrap/processes.hpp"
#include "unit/bootstrap/ranks.hpp"

namespace farandole::test {
namespace {

/// Every living rank reports that each of `victims` died; then all leave in order, and nobody
/// but the victims is taken for dead.
void expect_deaths(ProcessJob& job, const std::set<int>& victims) {
  const int size = static_cast<int>(job.ranks.size());
  for (int rank = 0; rank < size; ++rank) {
    if (victims.contains(rank)) continue;
    for (const int victim : victims) {
      ASSERT_TRUE(job[rank].expect("departed " + std::to_string(victim) + " died"))
          << "rank " << rank << " did not hear of " << victim << "\n"
          << job.transcript();
    }
  }
  for (RankProcess& one : job.ranks) one.tell_to_leave();
  for (int rank = 0; rank < size; ++rank) {
    if (victims.contains(rank)) continue;
    std::size_t deaths = 0;
    for (const std::string& line : job[rank].rest()) {
      deaths += line.starts_with("departed") && !line.ends_with("shut down");
    }
    EXPECT_EQ(deaths, victims.size()) << job.transcript();
    EXPECT_EQ(job[rank].wait(), 0) << job.transcript();
  }
}

// Goal: whichever rank is killed, all others hear which.
// Method: kill each of seven in turn, real processes and SIGKILL: root, inner nodes, leaves;
// with all links there, and right after the start, when some may be missing.
TEST(Failure, EveryoneHearsWhoDied) {
  for (int run = 0; run < 14; ++run) {
    const int victim = run % 7;
    ProcessJob job(7);
    if (run < 7) job.wait_for_links();
    job[victim].signal(SIGKILL);
    expect_deaths(job, {victim});
  }
}

// Goal: two deaths at once leave nobody uninformed, also when one of them was the other's only
// witness.
// Method: kill every pair of seven: parent and child, siblings, both neighbours of a rank.
TEST(Failure, EveryoneHearsOfTwoDeathsAtOnce) {
  for (int first = 0; first < 7; ++first) {
    for (int second = first + 1; second < 7; ++second) {
      ProcessJob job(7);
      if ((first + second) % 2 == 0) job.wait_for_links();
      job[first].signal(SIGKILL);
      job[second].signal(SIGKILL);
      expect_deaths(job, {first, second});
    }
  }
}

// Goal: most of the job may die at once, and the rest still hear of each.
// Method: of nine, kill all but two, which are far from each other in the tree.
TEST(Failure, TwoSurvivorsOfNine) {
  ProcessJob job(9);
  for (const int victim : {0, 1, 2, 3, 4, 5, 6}) job[victim].signal(SIGKILL);
  expect_deaths(job, {0, 1, 2, 3, 4, 5, 6});
}

// Goal: the tree stays whole when ranks leave early, so that later deaths are noticed.
// Method: for each inner node: it leaves in order; once all know, kill a leaf.
TEST(Failure, DeathsAreNoticedAfterAnInnerRankLeft) {
  for (const int leaver : {0, 1, 2}) {
    ProcessJob job(7);
    job[leaver].tell_to_leave();
    for (int rank = 0; rank < 7; ++rank) {
      if (rank == leaver) continue;
      ASSERT_TRUE(job[rank].expect("departed " + std::to_string(leaver) + " shut down"));
    }
    EXPECT_EQ(job[leaver].wait(), 0);
    const int victim = 2 * leaver + 2;  // a child of the leaver
    job[victim].signal(SIGKILL);
    for (int rank = 0; rank < 7; ++rank) {
      if (rank == leaver || rank == victim) continue;
      ASSERT_TRUE(job[rank].expect("departed " + std::to_string(victim) + " died"))
          << job.transcript();
    }
  }
}

// Goal: any sequence of departures and deaths is heard by all who are left, and nobody alive is
// taken for dead.
// Method: random sequences from printed seeds, each event awaited by every survivor.
TEST(Failure, RandomSequencesOfLeavingAndDying) {
  for (unsigned seed = 1; seed <= 6; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937 random(seed);
    constexpr int kSize = 9;
    ProcessJob job(kSize);
    std::vector<int> living(kSize);
    for (int rank = 0; rank < kSize; ++rank) living[static_cast<std::size_t>(rank)] = rank;
    while (living.size() > 1) {
      std::shuffle(living.begin(), living.end(), random);
      const int rank = living.back();
      living.pop_back();
      const bool dies = random() % 2 == 0;
      if (dies) job[rank].signal(SIGKILL);
      if (!dies) job[rank].tell_to_leave();
      const std::string line = "departed " + std::to_string(rank) + (dies ? " died" : " shut down");
      for (const int other : living) {
        ASSERT_TRUE(job[other].expect(line)) << "rank " << other << ": " << line << "\n"
                                             << job.transcript();
      }
    }
    const auto& lines = job[living[0]].lines();
    EXPECT_EQ(std::count_if(lines.begin(), lines.end(),
                            [](const std::string& line) { return line.starts_with("departed"); }),
              kSize - 1)
        << job.transcript();
  }
}

// Goal: the culprit comes first: when 3 is killed and 2 exits because of it, nobody is told of 2
// before 3.
// Method: rank 2 exits, without a departure, when it hears of any death; compare the orders.
TEST(Failure, TheCulpritIsHeardOfFirst) {
  for (int round = 0; round < 5; ++round) {
    ProcessJob job(7, [](int rank) {
      Behaviour behaviour;
      if (rank == 2) behaviour.on_departure = [](const Departure&) { _exit(3); };
      return behaviour;
    });
    job.wait_for_links();
    job[3].signal(SIGKILL);
    for (const int rank : {0, 1, 4, 5, 6}) {
      ASSERT_TRUE(job[rank].expect("departed 2 died")) << job.transcript();
      std::vector<std::string> departures = job[rank].lines();
      std::erase_if(departures,
                    [](const std::string& line) { return !line.starts_with("departed"); });
      EXPECT_EQ(departures, (std::vector<std::string>{"departed 3 died", "departed 2 died"}));
    }
  }
}

// Goal: a process that is stopped counts as failed after the timeout, and when it goes on it
// learns that it was given up, rather than that all others died.
// Method: SIGSTOP an inner rank with a short timeout; SIGCONT once all have reported it.
TEST(Failure, AStoppedProcessIsSilent) {
  ProcessJob job(7, [](int) { return Behaviour{[](Job& one) { one.timeout = 1500ms; }}; });
  job.wait_for_links();
  job[1].signal(SIGSTOP);
  for (const int rank : {0, 2, 3, 4, 5, 6}) {
    ASSERT_TRUE(job[rank].expect("departed 1 went silent for 1.5 s")) << job.transcript();
  }
  job[1].signal(SIGCONT);
  job[1].tell_to_leave();
  for (RankProcess& one : job.ranks) one.tell_to_leave();
  EXPECT_EQ(job[1].wait(), 0);
  for (const int rank : {0, 2, 3, 4, 5, 6}) {
    for (const std::string& line : job[rank].rest()) {
      EXPECT_TRUE(!line.starts_with("departed") || line.ends_with("shut down") ||
                  line.starts_with("departed 1 "))
          << line;
    }
  }
}

// Goal: nothing outlives its launcher.
// Method: a job of one whose launcher's pipe closes: it hears of it and is killed.
TEST(Failure, TheLaunchersDeathEndsTheProcess) {
  int launcher[2];
  ASSERT_EQ(pipe2(launcher, O_CLOEXEC), 0);
  Job job;
  job.launcher_fd = launcher[0];
  Descriptor write_end(launcher[1]);  // closed in the child
  RankProcess process(job, {});
  close(launcher[0]);
  ASSERT_TRUE(process.expect("started"));
  write_end.close();
  EXPECT_TRUE(process.expect("launcher died"));
  const int status = process.wait();
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) << status;
}

// Goal: a child that a rank forked, such as a data loader's worker, does not hide its death.
// Method: the rank forks a process that lives on and holds all it inherited; kill the rank.
TEST(Failure, AForkedWorkerDoesNotHideADeath) {
  int worker_life[2];
  ASSERT_EQ(pipe2(worker_life, O_CLOEXEC), 0);
  ProcessJob job(3, [&](int rank) {
    Behaviour behaviour;
    if (rank != 1) return behaviour;
    behaviour.after_start = [&](Session& session) {
      if (fork() != 0) return session.flood("up");
      close(worker_life[1]);
      alarm(300);
      char end;
      while (read(worker_life[0], &end, 1) < 0 && errno == EINTR) {
      }
      _exit(0);
    };
    return behaviour;
  });
  job.wait_for_links();
  job[1].signal(SIGKILL);
  EXPECT_TRUE(job[0].expect("departed 1 died"));
  EXPECT_TRUE(job[2].expect("departed 1 died"));
  close(worker_life[0]);
  close(worker_life[1]);
}

}  // namespace
}  // namespace farandole::test
