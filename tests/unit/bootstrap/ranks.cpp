// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "unit/bootstrap/ranks.hpp"

#include <gtest/gtest.h>

#include <filesystem>
#include <thread>

namespace farandole::test {

Descriptor launcher_socket() {
  auto socket = listen_at(Endpoint{"127.0.0.1", 0});
  EXPECT_TRUE(socket) << socket.error().message;
  return *std::move(socket);
}

Job local_job(int rank, int size, const Descriptor& socket) {
  Job job;
  job.rank = Rank{rank};
  job.size = size;
  job.local_rank = rank;
  job.local_size = size;
  job.host = "this host";
  job.host_id = "this host";
  job.timeout = 30s;
  job.id = "test";
  job.address = "127.0.0.1";
  job.port = local_endpoint(socket.fd()).port;
  job.listen_fd = rank == 0 ? socket.fd() : -1;
  job.secret = Secret("the secret of the tests");
  job.start_timeout = kPatience;
  return job;
}

std::set<std::string> open_descriptors() {
  std::set<std::string> found;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    found.insert(entry.path().filename());
  }
  return found;
}

Session::Events Ear::events() {
  return {[this](const Departure& departure) {
            const std::lock_guard lock(mutex_);
            departed.push_back(departure);
            changed_.notify_all();
          },
          [this](Rank from, std::string_view message) {
            const std::lock_guard lock(mutex_);
            noticed.emplace_back(from.value(), message);
            changed_.notify_all();
          },
          [this] {
            const std::lock_guard lock(mutex_);
            launcher_died = true;
            changed_.notify_all();
          }};
}

bool Ear::wait_for(const std::function<bool(const Ear&)>& ready) {
  std::unique_lock lock(mutex_);
  return changed_.wait_for(lock, kPatience, [&] { return ready(*this); });
}

bool Ear::wait_for_departures(std::size_t count) {
  return wait_for([count](const Ear& ear) { return ear.departed.size() >= count; });
}

std::vector<Departure> Ear::departures() const {
  const std::lock_guard lock(mutex_);
  return departed;
}

std::vector<std::pair<int, std::string>> Ear::notices() const {
  const std::lock_guard lock(mutex_);
  return noticed;
}

void on_threads(int count, const std::function<void(int)>& body) {
  std::vector<std::thread> threads;
  for (int rank = 0; rank < count; ++rank) threads.emplace_back(body, rank);
  for (std::thread& thread : threads) thread.join();
}

Ranks::Ranks(int size, const std::function<void(Job&)>& adjust) : socket(launcher_socket()) {
  const auto count = static_cast<std::size_t>(size);
  sessions.resize(count);
  failures.resize(count);
  for (int rank = 0; rank < size; ++rank) ears.push_back(std::make_unique<Ear>());
  on_threads(size, [&](int rank) {
    Job job = local_job(rank, size, socket);
    if (adjust) adjust(job);
    auto session =
        Session::start(job, {{"entry", "of " + std::to_string(rank)}}, ear(rank).events());
    const auto index = static_cast<std::size_t>(rank);
    if (session) {
      sessions[index] = *std::move(session);
    } else {
      failures[index] = session.error();
    }
  });
}

Ranks::~Ranks() {
  leave_all();
}

void Ranks::leave_all(const std::string& state) {
  on_threads(static_cast<int>(size()), [&](int rank) {
    if (sessions[static_cast<std::size_t>(rank)]) (*this)[rank].leave(state);
  });
}

std::string Ranks::errors() const {
  std::string list;
  for (const Error& failure : failures) list += failure.message;
  return list;
}

}  // namespace farandole::test
