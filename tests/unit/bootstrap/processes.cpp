// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "unit/bootstrap/processes.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "unit/bootstrap/ranks.hpp"

namespace farandole::test {
namespace {

constexpr unsigned kLifetimeSeconds = 60;

/// The child's whole life. It never returns into the test framework.
[[noreturn]] void live(Job job, const Behaviour& behaviour, int commands, int reports) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  alarm(kLifetimeSeconds);
  if (behaviour.adjust) behaviour.adjust(job);
  const auto report = [reports](const std::string& line) {
    const std::string text = line + "\n";
    if (write(reports, text.data(), text.size()) < 0) _exit(2);
  };
  Session::Events events;
  events.departed = [&](const Departure& departure) {
    report("departed " + std::to_string(departure.rank.value()) + " " + departure.reason);
    if (behaviour.on_departure) behaviour.on_departure(departure);
  };
  events.notice = [&](Rank from, std::string_view message) {
    report("notice " + std::to_string(from.value()) + " " + std::string(message));
  };
  events.launcher_died = [&] { report("launcher died"); };
  auto session = Session::start(job, {}, events);
  if (!session) {
    report("failed: " + session.error().message);
    _exit(1);
  }
  report("started");
  if (behaviour.after_start) {
    behaviour.after_start(**session);
  } else {
    (*session)->flood("up");
  }
  char command = 0;
  while (read(commands, &command, 1) < 0 && errno == EINTR) {
  }
  (*session)->leave("");
  session->reset();
  _exit(0);
}

}  // namespace

RankProcess::RankProcess(Job job, const Behaviour& behaviour) {
  int commands[2], reports[2];
  if (pipe2(commands, O_CLOEXEC) != 0 || pipe2(reports, O_CLOEXEC) != 0) abort();
  // The launcher's socket must survive in this child, but not the pipes of its siblings, which
  // are Descriptors and closed by fork().
  const std::string secret(job.secret.view());  // the Secret itself is wiped in the child
  pid_ = fork();
  if (pid_ == 0) {
    job.secret = Secret(secret);
    close(commands[1]);
    close(reports[0]);
    live(std::move(job), behaviour, commands[0], reports[1]);
  }
  close(commands[0]);
  close(reports[1]);
  commands_ = Descriptor(commands[1]);
  reports_ = Descriptor(reports[0]);
}

RankProcess::RankProcess(RankProcess&& other) noexcept
    : pid_(std::exchange(other.pid_, -1)),
      reaped_(other.reaped_),
      commands_(std::move(other.commands_)),
      reports_(std::move(other.reports_)),
      buffer_(std::move(other.buffer_)),
      lines_(std::move(other.lines_)) {}

RankProcess::~RankProcess() {
  if (pid_ <= 0 || reaped_) return;
  kill(pid_, SIGKILL);
  wait();
}

void RankProcess::signal(int number) const {
  kill(pid_, number);
}
void RankProcess::tell_to_leave() {
  commands_.close();
}

bool RankProcess::read_line() {
  for (;;) {
    const std::size_t end = buffer_.find('\n');
    if (end != std::string::npos) {
      lines_.push_back(buffer_.substr(0, end));
      buffer_.erase(0, end + 1);
      return true;
    }
    pollfd readable{reports_.fd(), POLLIN, 0};
    if (poll(&readable, 1, 1000 * static_cast<int>(kLifetimeSeconds)) == 0) return false;
    char bytes[4096];
    const ssize_t got = read(reports_.fd(), bytes, sizeof bytes);
    if (got == 0 || (got < 0 && errno != EINTR)) return false;
    if (got > 0) buffer_.append(bytes, static_cast<std::size_t>(got));
  }
}

bool RankProcess::expect(const std::string& line) {
  if (std::find(lines_.begin(), lines_.end(), line) != lines_.end()) return true;
  while (read_line()) {
    if (lines_.back() == line) return true;
  }
  return false;
}

std::vector<std::string> RankProcess::rest() {
  while (read_line()) {
  }
  return lines_;
}

int RankProcess::wait() {
  int status = 0;
  while (waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
  }
  reaped_ = true;
  return status;
}

ProcessJob::ProcessJob(int size, const std::function<Behaviour(int)>& behaviour) {
  const Descriptor own = launcher_socket();
  // Rank 0 takes a plain copy: Descriptors do not survive fork().
  const int inherited = fcntl(own.fd(), F_DUPFD_CLOEXEC, 3);
  for (int rank = 0; rank < size; ++rank) {
    Job job = local_job(rank, size, own);
    if (rank == 0) job.listen_fd = inherited;
    ranks.emplace_back(std::move(job), behaviour ? behaviour(rank) : Behaviour{});
    if (rank == 0) close(inherited);
  }
  for (RankProcess& one : ranks) EXPECT_TRUE(one.expect("started")) << transcript();
}

/// Any two ranks have one path between them, so all links are there once all have heard from all.
void ProcessJob::wait_for_links() {
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    for (std::size_t other = 0; other < ranks.size(); ++other) {
      if (other == rank) continue;
      EXPECT_TRUE(ranks[rank].expect("notice " + std::to_string(other) + " up")) << transcript();
    }
  }
}

std::string ProcessJob::transcript() const {
  std::string text;
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    text += "rank " + std::to_string(rank) + ":\n";
    for (const std::string& line : ranks[rank].lines()) text += "  " + line + "\n";
  }
  return text;
}

}  // namespace farandole::test
