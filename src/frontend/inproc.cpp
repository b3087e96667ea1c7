// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <thread>
#include <utility>

#include "bootstrap/complete.hpp"
#include "bootstrap/secret.hpp"
#include "farandole/farandole.hpp"
#include "frontend/choices.hpp"
#include "frontend/context_state.hpp"
#include "frontend/cores.hpp"
#include "transport/registry.hpp"

namespace farandole {
namespace {

/// Joins ranks that are threads of one process, in place of a session.
struct Hub {
  std::mutex mutex;
  std::vector<std::shared_ptr<Memory>> memories;  // outlive every rank that maps them
  std::vector<std::weak_ptr<ContextState>> states;

  template <class Tell>
  void others(Rank self, Tell tell) {
    std::vector<std::shared_ptr<ContextState>> living;
    {
      const std::lock_guard lock(mutex);
      for (std::size_t rank = 0; rank < states.size(); ++rank) {
        if (static_cast<int>(rank) != self.value()) living.push_back(states[rank].lock());
      }
    }
    for (const auto& state : living) {  // without the lock, since `tell` may call others() again
      if (state) tell(*state);
    }
  }
};

Members thread_members(int rank_count) {
  Members members;
  const std::string cores = own_core_share().text();
  for (int rank = 0; rank < rank_count; ++rank) {
    members.push_back(
        {Rank{rank}, rank, "this process", "", static_cast<int>(getpid()), {{kCoresEntry, cores}}});
  }
  return members;
}

Result<std::shared_ptr<ContextState>> blank_state(int rank, int rank_count, bool peer_memory,
                                                  const TransportRow& row) {
  auto state = make_context_state();
  state->environment.job.rank = Rank{rank};
  state->environment.origin = Origin(rank);
  state->environment.job.size = rank_count;
  state->environment.job.started_by = "threads";
  if (auto read = apply_settings(state->environment.job); !read) return read.error();
  if (auto read = read_settings(state->environment); !read) return read.error();
  // Threads have one environment, so that there is nothing to publish.
  auto tuning = read_tuning_file();
  if (!tuning) return tuning.error();
  if (auto adopted = adopt_tuning(*tuning, state->planning); !adopted) return adopted.error();
  state->environment.peer_memory = peer_memory;
  state->environment.transport = row.name;
  return state;
}

std::shared_ptr<ContextState> furnish(std::shared_ptr<ContextState> state, ThreadRank rank,
                                      const std::shared_ptr<Hub>& hub) {
  const Rank self = state->environment.job.rank;
  state->membership.settle(self, thread_members(state->environment.job.size));
  state->fabric.memory = std::move(rank.memory);
  state->fabric.doorbell = std::move(rank.doorbell);
  state->fabric.transports.push_back(std::move(rank.transport));
  state->membership.tell_threads = [hub, self](const Departure& departure) {
    hub->others(self, [&](ContextState& other) { other.membership.relay.departed(departure); });
  };
  state->membership.flood = [hub, self](std::string_view message) {
    hub->others(self, [&](ContextState& other) { other.membership.relay.notice(self, message); });
  };
  hub->memories.push_back(state->fabric.memory);
  hub->states.push_back(state);
  return state;
}

/// A listening socket on a free loopback port, and that port.
Result<std::pair<int, std::uint16_t>> listen_on_loopback() {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  auto* raw = reinterpret_cast<sockaddr*>(&address);
  if (fd < 0 || bind(fd, raw, size) != 0 || listen(fd, SOMAXCONN) != 0 ||
      getsockname(fd, raw, &size) != 0) {
    if (fd >= 0) close(fd);
    return Error{ErrorKind::kInternal, std::string("no loopback socket: ") + strerror(errno)};
  }
  return std::pair{fd, ntohs(address.sin_port)};
}

/// Starts the ranks in parallel, since each of them waits for the others.
template <class Start>
Result<std::vector<std::unique_ptr<Context>>> together(
    std::vector<std::shared_ptr<ContextState>> states, Start start) {
  std::vector<Result<std::unique_ptr<Context>>> started;
  for (std::size_t rank = 0; rank < states.size(); ++rank) started.emplace_back(Error{});
  std::vector<std::thread> threads;
  for (std::size_t rank = 0; rank < states.size(); ++rank) {
    threads.emplace_back([&, rank] { started[rank] = start(std::move(states[rank])); });
  }
  for (std::thread& thread : threads) thread.join();
  std::vector<std::unique_ptr<Context>> contexts;
  for (auto& context : started) {
    if (!context) return context.error();
    contexts.push_back(*std::move(context));
  }
  return contexts;
}

}  // namespace

Result<std::vector<std::unique_ptr<Context>>> Context::inproc(int rank_count, bool peer_memory,
                                                              const std::string& transport) {
  if (rank_count < 1 || rank_count > 256) {
    return Error{
        ErrorKind::kInvalidArgument,
        "argument 'rank_count' is " + std::to_string(rank_count) + ", allowed is 1 to 256."};
  }
  const TransportRow* row =
      find_transport(transport.empty() ? transport_names(true).front() : transport);
  if (row == nullptr) {
    std::string names;
    for (const bool threads : {true, false}) {
      for (const std::string_view name : transport_names(threads)) {
        names += (names.empty() ? "" : ", ") + std::string(name);
      }
    }
    return Error{ErrorKind::kInvalidArgument,
                 "argument 'transport' is '" + transport + "', allowed is one of " + names + "."};
  }
  if (row->threads == nullptr) return over_loopback(rank_count, peer_memory, transport);
  auto ranks = row->threads(rank_count, peer_memory);
  if (!ranks) return ranks.error();
  const auto id = random_bytes(8);
  if (!id) return id.error();
  auto hub = std::make_shared<Hub>();
  std::vector<std::shared_ptr<ContextState>> states;
  for (int rank = 0; rank < rank_count; ++rank) {
    auto state = blank_state(rank, rank_count, peer_memory, *row);
    if (!state) return state.error();
    (*state)->environment.job.id = hexadecimal(*id);
    states.push_back(
        furnish(*std::move(state), std::move((*ranks)[static_cast<std::size_t>(rank)]), hub));
  }
  return together(std::move(states), [&](std::shared_ptr<ContextState> state) {
    std::vector<Transport*> by_rank(static_cast<std::size_t>(rank_count),
                                    state->fabric.transports[0].get());
    by_rank[static_cast<std::size_t>(state->environment.job.rank.value())] = nullptr;
    return begin(std::move(state), by_rank);
  });
}

Result<std::vector<std::unique_ptr<Context>>> Context::over_loopback(int rank_count,
                                                                     bool peer_memory,
                                                                     const std::string& transport) {
  auto listener = listen_on_loopback();
  if (!listener) return listener.error();
  const auto id = random_bytes(8);
  if (!id) return id.error();
  auto bytes = random_bytes(32);
  if (!bytes) return bytes.error();
  const Secret secret(Transient(*std::move(bytes)).text);
  std::vector<std::shared_ptr<ContextState>> states;
  for (int rank = 0; rank < rank_count; ++rank) {
    auto state = blank_state(rank, rank_count, peer_memory, *find_transport(transport));
    if (!state) return state.error();
    (*state)->environment.memory_reserve =
        Bytes{std::size_t{4} << 30};  // mapped rank_count^2 times here
    Job& job = (*state)->environment.job;
    job.id = hexadecimal(*id);
    job.secret = secret;
    job.address = "127.0.0.1";
    job.port = listener->second;
    if (rank == 0) job.listen_fd = listener->first;
    states.push_back(*std::move(state));
  }
  return together(std::move(states),
                  [](std::shared_ptr<ContextState> state) { return join(std::move(state)); });
}

}  // namespace farandole
