// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <charconv>
#include <optional>
#include <string>

#include "base/log.hpp"
#include "bootstrap/complete.hpp"
#include "bootstrap/invalid.hpp"
#include "bootstrap/sha256.hpp"
#include "bootstrap/starters.hpp"
#include "bootstrap/variables.hpp"
#include "farandole/job.hpp"

namespace farandole {
namespace {

constexpr int kSizeMax = 1'000'000'000;
constexpr int kPortMax = 65535;
// torchrun's own store listens at MASTER_PORT; we use the ports after it.
constexpr int kPortsAfterMaster = 16;
// Ports derived from the job's id; below 32768 the system gives none to outgoing connections.
constexpr int kDerivedPortLow = 20000, kDerivedPortHigh = 32000, kDerivedPorts = 20;

bool is_loopback(const std::string& address) {
  return address == "localhost" || address == "::1" || address.starts_with("127.");
}

/// "HOROVOD_RANK=1, HOROVOD_SIZE=4 of horovodrun".
std::string evidence(const Starter& starter) {
  return what_it_told(starter, variable) + " of " + starter.name;
}

/// The error of a process that is one of several, and does not know which or of how many.
Error half_told(const Starter& starter) {
  const char* const missing = first_set(starter.rank, variable) ? starter.size[0] : starter.rank[0];
  std::string message = "this is not the only process by " + evidence(starter) + ", and ";
  if (starter.remedy != nullptr) {
    message += starter.remedy;
  } else if (missing != nullptr) {
    message += std::string(missing) + " is not set: set it";
  } else {
    message += "how many there are is not told: start them with `farandole run`, torchrun or srun";
  }
  return invalid(message +
                 ", or set RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT; for a process that is "
                 "alone FARANDOLE_RANK=0 and FARANDOLE_SIZE=1.");
}

/// Reads rank and size, and the local ones if the starter tells them. Else all ranks are on this
/// host if MASTER_ADDR is loopback; otherwise each has a host of its own. Local ones are a hint:
/// the ranks settle them once they have met.
Result<void> read_numbering(const Starter& starter, Job& job) {
  const char* const rank_name = first_set(starter.rank, variable);
  const char* const size_name = first_set(starter.size, variable);
  if (rank_name == nullptr || size_name == nullptr) return half_told(starter);
  const auto size = integer_variable(size_name, 1, kSizeMax);
  if (!size) return size.error();
  const auto rank = integer_variable(rank_name, 0, *size - 1);
  if (!rank) return rank.error();
  job.rank = Rank{*rank};
  job.size = *size;
  const char* const local_size_name = first_set(starter.local_size, variable);
  if (local_size_name != nullptr) {
    const auto local_size = integer_variable(local_size_name, 1, *size);
    if (!local_size) return local_size.error();
    job.local_size = *local_size;
  } else if (is_loopback(variable("MASTER_ADDR").value_or(""))) {
    job.local_rank = *rank;
    job.local_size = *size;
  }
  if (const char* const name = first_set(starter.local_rank, variable)) {
    const int high = local_size_name != nullptr ? job.local_size : *size;
    const auto local_rank = integer_variable(name, 0, high - 1);
    if (!local_rank) return local_rank.error();
    job.local_rank = *local_rank;
  }
  return {};
}

/// "host:port" or "[address]:port".
Result<void> read_rendezvous(const std::string& value, Job& job) {
  const std::size_t colon = value.rfind(':');
  std::string host = value.substr(0, colon);
  if (host.size() > 2 && host.front() == '[' && host.back() == ']') {
    host = host.substr(1, host.size() - 2);
  } else if (host.find(':') != std::string::npos) {
    host.clear();
  }
  int port = 0;
  if (colon != std::string::npos) {
    const char* const last = value.data() + value.size();
    const auto [end, failure] = std::from_chars(value.data() + colon + 1, last, port);
    if (failure != std::errc() || end != last) port = 0;
  }
  if (host.empty() || port < 1 || port > kPortMax) {
    return invalid("FARANDOLE_RENDEZVOUS is '" + value +
                   "', allowed is host:port or [address]:port with a port from 1 to 65535.");
  }
  job.address = host;
  job.port = static_cast<std::uint16_t>(port);
  job.port_count = 1;
  return {};
}

void derive_ports(Job& job) {
  const Digest digest = sha256(job.id);
  const int number = digest[0] << 16 | digest[1] << 8 | digest[2];
  constexpr int kSpan = kDerivedPortHigh - kDerivedPortLow - kDerivedPorts;
  job.port = static_cast<std::uint16_t>(kDerivedPortLow + number % kSpan);
  job.port_count = kDerivedPorts;
}

/// MASTER_ADDR and MASTER_PORT as in PyTorch, where they are set.
Result<void> read_master(Job& job) {
  if (const auto address = variable("MASTER_ADDR")) job.address = *address;
  if (!variable("MASTER_PORT")) return {};
  const auto port = integer_variable("MASTER_PORT", 1, kPortMax - 1);
  if (!port) return port.error();
  job.port = static_cast<std::uint16_t>(*port + 1);
  job.port_count = std::min(kPortsAfterMaster, kPortMax - *port);
  return {};
}

Error no_address(const Starter& starter, const Job& job, const char* variables) {
  return invalid("the job has " + std::to_string(job.size) + " ranks (" + evidence(starter) +
                 "), " + std::to_string(job.local_size) +
                 " of them on this host, and no address of rank 0; export " + variables +
                 " to all of them.");
}

/// The name that the starter gives the job, if any.
std::optional<std::string> job_name(const Starter& starter) {
  std::string id;
  for (const Names& names : {starter.job, starter.step}) {
    if (names[0] == nullptr) continue;
    const char* const name = first_set(names, variable);
    if (name == nullptr) return std::nullopt;
    id += (id.empty() ? "" : ".") + *variable(name);
  }
  return id.empty() ? std::nullopt : std::optional(id);
}

/// The job's name, and address and port of rank 0.
Result<void> find_meeting_point(const Starter& starter, Job& job) {
  if (const auto point = variable("FARANDOLE_RENDEZVOUS")) {
    job.id = *point;
    return read_rendezvous(*point, job);
  }
  if (starter.meeting == Starter::Meeting::kOwn) {
    return invalid("FARANDOLE_RENDEZVOUS is not set, allowed is host:port of rank 0.");
  }
  const bool one_host = job.local_size == job.size;
  const auto address = variable("MASTER_ADDR"), port = variable("MASTER_PORT");
  std::optional<std::string> id = job_name(starter);
  const bool by_master = starter.meeting == Starter::Meeting::kMaster || (!id && !one_host);
  if (by_master) {
    if (!address || !port) return no_address(starter, job, "MASTER_ADDR and MASTER_PORT");
    id = id.value_or("") + " at " + *address + ":" + *port;
  }
  if (!id) id = launcher_identity(first_set(starter.rank, variable));
  job.id = std::string(starter.name) + " " + *id;
  if (auto read = read_master(job); !read) return read.error();
  if (job.address.empty() && !one_host) return no_address(starter, job, "MASTER_ADDR");
  if (job.port == 0) derive_ports(job);
  if (one_host) job.address = "127.0.0.1";
  return {};
}

/// Slurm's batch script and interactive shell are one process each, however many tasks they have.
void warn_of_a_batch_script() {
  const auto tasks = variable("SLURM_NTASKS");
  if (!variable("SLURM_PROCID") || !tasks || *tasks == "1") return;
  log(LogLevel::kWarning,
      "this process is Slurm's batch script or shell and no task of a step, so it is a job of one "
      "rank; `srun python ...` or `farandole run -n " +
          *tasks + " python ...` starts " + *tasks + ".");
}

Result<void> identify(Job& job) {
  const Starter* const starter = starter_of(variable);
  if (starter == nullptr) {
    job.started_by = "alone";
    job.id = "alone";
    warn_of_a_batch_script();
    return {};
  }
  job.started_by = starter->name;
  if (auto read = read_numbering(*starter, job); !read) return read.error();
  if (starter->complete != nullptr) {
    if (auto done = starter->complete(job); !done) return done.error();
  }
  if (job.size == 1) {
    job.id = "alone";
    return {};
  }
  return find_meeting_point(*starter, job);
}

/// Reads the descriptors that a launcher left open for this process.
Result<void> read_descriptors(Job& job) {
  for (const auto& [name, target] : {std::pair("FARANDOLE_LISTEN_FD", &job.listen_fd),
                                     std::pair("FARANDOLE_LAUNCHER_FD", &job.launcher_fd)}) {
    const auto fd = integer_variable(name, 0, 1'000'000, -1);
    if (!fd) return fd.error();
    *target = *fd;
  }
  return {};
}

}  // namespace

Result<Job> job_from_environment() {
  Job job;
  if (auto read = identify(job); !read) return read.error();
  if (auto read = read_descriptors(job); !read) return read.error();
  if (const auto name = variable("FARANDOLE_JOB")) job.id = *name;
  return complete(std::move(job));
}

}  // namespace farandole
