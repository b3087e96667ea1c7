// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "bootstrap/rendezvous.hpp"

#include <fcntl.h>

#include <cerrno>
#include <cstring>

#include "bootstrap/complete.hpp"
#include "bootstrap/invalid.hpp"

namespace farandole {
namespace {

/// A copy of the launcher's socket: the original stays open for a later session of this process.
Result<Descriptor> adopt(int listen_fd) {
  int listening = 0;
  socklen_t length = sizeof listening;
  const bool usable =
      getsockopt(listen_fd, SOL_SOCKET, SO_ACCEPTCONN, &listening, &length) == 0 && listening != 0;
  if (!usable) {
    return invalid("FARANDOLE_LISTEN_FD is '" + std::to_string(listen_fd) +
                   "', allowed is a listening socket that this process has inherited.");
  }
  fcntl(listen_fd, F_SETFD, FD_CLOEXEC);
  Descriptor copy(fcntl(listen_fd, F_DUPFD_CLOEXEC, 3));
  if (!copy || fcntl(copy.fd(), F_SETFL, fcntl(copy.fd(), F_GETFL) | O_NONBLOCK) != 0) {
    return invalid(std::string("cannot take over FARANDOLE_LISTEN_FD: ") + std::strerror(errno));
  }
  return copy;
}

/// Where to listen, and how the others reach this process there.
struct ListenAddress {
  std::string bound;
  std::string published;  // empty: where its connection to rank 0 comes from
};

Result<ListenAddress> choose_listen_address(const Job& job) {
  ListenAddress address;
  if (!job.interface.empty()) {
    auto own = interface_address(job.interface);
    if (!own) return own.error();
    address.published = *std::move(own);
  }
  if (job.store && job.address.empty()) {
    if (on_one_host(job)) {
      address.bound = address.published = "127.0.0.1";
    } else if (!address.published.empty() && job.rank != Rank{0}) {
      address.bound = address.published;
    } else {
      const auto own = host_addresses();
      const bool six = !own.empty() && own.front().find(':') != std::string::npos;
      address.bound = six ? "::" : "0.0.0.0";
    }
    return address;
  }
  // A name that cannot be resolved yet may be soon. The search for rank 0 reports it if not.
  const auto addresses = resolve(job.address);
  const Address first = addresses ? addresses->front() : Address{};
  const bool six = first.storage.ss_family == AF_INET6;
  // Some hosts resolve their own name to 127.0.1.1, which is true on that host only.
  if (addresses && is_loopback(first) && names_loopback(job.address)) {
    address.bound = address.published = six ? "::1" : "127.0.0.1";
  } else if (!address.published.empty() && job.rank != Rank{0}) {
    address.bound = address.published;
  } else {
    address.bound = six ? "::" : "0.0.0.0";  // rank 0 must also be reached at the job's address
  }
  return address;
}

Result<Descriptor> listen_at_first_free(const Job& job, const std::string& host) {
  for (int i = 0; i < job.port_count; ++i) {
    auto socket = listen_at(Endpoint{host, static_cast<std::uint16_t>(job.port + i)});
    if (socket || socket.error().kind != ErrorKind::kUnsupported) return socket;
  }
  const std::string last = std::to_string(job.port + job.port_count - 1);
  return invalid("rank 0 cannot listen at " + host + ": all ports from " +
                 std::to_string(job.port) + " to " + last +
                 " are taken; FARANDOLE_RENDEZVOUS or MASTER_PORT chooses others.");
}

}  // namespace

Result<Descriptor> open_listener(const Job& job, Endpoint& published) {
  auto address = choose_listen_address(job);
  if (!address) return address.error();
  const bool first = job.rank == Rank{0} && job.port > 0;
  auto socket = job.rank == Rank{0} && job.listen_fd >= 0 ? adopt(job.listen_fd)
                : first ? listen_at_first_free(job, address->bound)
                        : listen_at(Endpoint{address->bound, 0});
  if (!socket) return socket.error();
  published = Endpoint{address->published, local_endpoint(socket->fd()).port};
  return socket;
}

Result<Roster> rendezvous(const Job& job, std::vector<Endpoint> meeting, Listener& listener,
                          Registration self, Deadline deadline, std::set<int>& absent) {
  return job.rank == Rank{0} ? assemble(job, listener, std::move(self), deadline, absent)
                             : attend(job, std::move(meeting), listener, std::move(self), deadline);
}

std::string loopback_hint(const Job& job) {
  if (job.store) return "";
  const auto addresses = resolve(job.address);
  if (!addresses || !is_loopback(addresses->front())) return "";
  return " From here '" + job.address + "' reaches this host only; if the job has others, " +
         "MASTER_ADDR or FARANDOLE_RENDEZVOUS must name rank 0's host as they know it.";
}

std::string encode_failure(const Error& error) {
  Writer writer;
  const ProcessName culprit = error.culprit.value_or(ProcessName{});
  writer.u8(static_cast<std::uint8_t>(error.kind)).text(error.message);
  writer.u8(error.culprit.has_value()).i32(culprit.rank).text(culprit.host).i32(culprit.pid);
  return std::move(writer).bytes();
}

Error decode_failure(std::string_view bytes) {
  Reader reader(bytes);
  const std::uint8_t kind = reader.u8();
  Error error{static_cast<ErrorKind>(kind), reader.text()};
  const bool named = reader.flag();
  ProcessName culprit;
  culprit.rank = reader.i32();
  culprit.host = reader.text();
  culprit.pid = reader.i32();
  if (named) error.culprit = culprit;
  if (!reader.complete() || kind > static_cast<std::uint8_t>(ErrorKind::kAborted)) {
    return Error{ErrorKind::kInternal, "rank 0 sent a malformed failure."};
  }
  return error;
}

}  // namespace farandole
