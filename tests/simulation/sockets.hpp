// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <string>

#include "bootstrap/socket.hpp"
#include "bootstrap/sockets.hpp"
#include "simulation/random.hpp"
#include "simulation/timetable.hpp"

namespace farandole::simulation {

/// The stream sockets of all virtual processes, with delays. While it lives the control plane's
/// code uses it. A process that is stopped still has a system that takes connections and bytes.
class VirtualSockets final : public Sockets {
 public:
  /// `wake`: something is ready at one of the rank's sockets.
  VirtualSockets(Timetable& timetable, Random& random, Clock::duration delay_max, int rank_count,
                 std::function<void(int rank)> wake);
  ~VirtualSockets() override { install(nullptr); }

  /// Whose calls the next ones are.
  void run_as(int rank) { current_ = rank; }
  /// A listening socket of the current rank, at endpoint_of(rank).
  int listen();
  static Endpoint endpoint_of(int rank);
  /// The system closes everything that the process had open.
  void kill(int rank);
  std::size_t open_count() const { return ends_.size(); }

  int connect(const Address& address) override;
  int accept(int listener) override;
  int connection_error(int fd) override;
  ssize_t send(int fd, const char* data, std::size_t bytes) override;
  ssize_t receive(int fd, char* data, std::size_t bytes, bool peek) override;
  void finish(int fd) override;
  void close(int fd) override;
  void look(std::span<pollfd> entries) override;

 private:
  struct End {
    int owner = 0;
    int peer = -1;
    bool connected = false, refused = false, ended = false;
    std::string arrived;
    Clock::time_point last_due{};  // of what this end has sent
    std::deque<int> backlog;       // of a listener
  };
  int add(int owner);
  End* find(int fd);
  Clock::time_point next_due(End& sender);
  void arrive_at(int server_rank, int client);
  void end_stream(End& sender);

  Timetable& timetable_;
  Random& random_;
  const Clock::duration delay_max_;
  const std::function<void(int)> wake_;
  std::map<int, End> ends_;     // by descriptor
  std::vector<int> listeners_;  // by rank; -1: none
  int current_ = 0;
  int next_ = 1 << 20;  // beyond all that the system gives out
};

}  // namespace farandole::simulation
