// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "bootstrap/rendezvous.hpp"

#include <fcntl.h>

#include <cerrno>
#include <cstring>

namespace farandole {
namespace {

Error invalid(const std::string& message) {
  return Error{ErrorKind::kInvalidArgument, message};
}

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

Result<std::string> listening_host(const Job& job) {
  if (!job.interface.empty()) return interface_address(job.interface);
  auto addresses = resolve(job.address, job.port);
  if (!addresses) return addresses.error();
  const Address& first = addresses->front();
  const bool six = first.storage.ss_family == AF_INET6;
  if (is_loopback(first)) return std::string(six ? "::1" : "127.0.0.1");
  return std::string(six ? "::" : "0.0.0.0");
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

Result<Descriptor> open_listener(const Job& job) {
  if (job.rank == Rank{0} && job.listen_fd >= 0) return adopt(job.listen_fd);
  auto host = listening_host(job);
  if (!host) return host.error();
  if (job.rank == Rank{0}) return listen_at_first_free(job, *host);
  return listen_at(Endpoint{*host, 0});
}

Result<Roster> rendezvous(const Job& job, Listener& listener, Registration self) {
  const Endpoint bound = local_endpoint(listener.fd());
  self.listener.port = bound.port;
  if (bound.host != "0.0.0.0" && bound.host != "::") self.listener.host = bound.host;
  const Deadline deadline = Deadline::after(job.start_timeout);
  return job.rank == Rank{0} ? assemble(job, listener, std::move(self), deadline)
                             : attend(job, listener, std::move(self), deadline);
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
  const bool named = reader.u8() != 0;
  ProcessName culprit;
  culprit.rank = reader.i32();
  culprit.host = reader.text();
  culprit.pid = reader.i32();
  if (named) error.culprit = culprit;
  if (!reader.complete() || kind > static_cast<std::uint8_t>(ErrorKind::kInternal)) {
    return Error{ErrorKind::kInternal, "rank 0 sent a malformed failure."};
  }
  return error;
}

}  // namespace farandole
