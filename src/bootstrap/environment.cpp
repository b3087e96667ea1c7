// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <charconv>
#include <string>

#include "base/settings.hpp"
#include "bootstrap/job.hpp"
#include "bootstrap/secret.hpp"
#include "bootstrap/sha256.hpp"
#include "bootstrap/slurm.hpp"
#include "bootstrap/variables.hpp"

namespace farandole {
namespace {

constexpr int kSizeMax = 1'000'000'000;
constexpr int kPortMax = 65535;
// torchrun's own store listens at MASTER_PORT; ours are the next ones.
constexpr int kPortsAfterMaster = 16;
// Ports derived from the job's id; below 32768 the system gives none to outgoing connections.
constexpr int kDerivedPortLow = 20000, kDerivedPortHigh = 32000, kDerivedPorts = 20;

Error invalid(const std::string& message) {
  return Error{ErrorKind::kInvalidArgument, message};
}

/// The four variables with which a launcher numbers its processes; unset ones are null.
struct Numbering {
  const char* rank;
  const char* size;
  const char* local_rank;
  const char* local_size;
};

/// Reads rank and size, and the local ones where the launcher tells them, else as if every
/// process had a host of its own.
Result<void> read_numbering(const Numbering& names, Job& job) {
  const auto size = integer_variable(names.size, 1, kSizeMax);
  if (!size) return size.error();
  const auto rank = integer_variable(names.rank, 0, *size - 1);
  if (!rank) return rank.error();
  const auto local_size = integer_variable(names.local_size, 1, *size, 1);
  if (!local_size) return local_size.error();
  const auto local_rank = integer_variable(
      names.local_rank, 0, variable(names.local_size) ? *local_size - 1 : *size - 1, 0);
  if (!local_rank) return local_rank.error();
  job.rank = Rank{*rank};
  job.size = *size;
  job.local_rank = *local_rank;
  job.local_size = *local_size;
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

Error no_address(const Job& job, const char* variables) {
  return invalid("the job has " + std::to_string(job.size) + " ranks, " +
                 std::to_string(job.local_size) + " of them on this host, and no address of rank " +
                 "0; export " + variables + " to all of them.");
}

/// Address and port of a job whose launcher names a job but no meeting point.
Result<void> find_meeting_point(Job& job) {
  const bool one_host = job.local_size == job.size;
  if (auto read = read_master(job); !read) return read.error();
  if (job.address.empty() && !one_host) return no_address(job, "MASTER_ADDR");
  if (job.port == 0) derive_ports(job);
  if (one_host) job.address = "127.0.0.1";
  return {};
}

Result<void> from_farandole(Job& job) {
  job.started_by = "farandole run";
  const Numbering names{"FARANDOLE_RANK", "FARANDOLE_SIZE", "FARANDOLE_LOCAL_RANK",
                        "FARANDOLE_LOCAL_SIZE"};
  if (auto read = read_numbering(names, job); !read) return read.error();
  const auto rendezvous = variable("FARANDOLE_RENDEZVOUS");
  if (job.size > 1 && !rendezvous) {
    return invalid("FARANDOLE_RENDEZVOUS is not set, allowed is host:port of rank 0.");
  }
  job.id = rendezvous.value_or("alone");
  return {};
}

Result<void> from_torchrun(Job& job) {
  const auto run = variable("TORCHELASTIC_RUN_ID");
  job.started_by = run ? "torchrun" : "RANK and WORLD_SIZE";
  const Numbering names{"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"};
  if (auto read = read_numbering(names, job); !read) return read.error();
  if (job.size == 1) return {};
  const auto address = variable("MASTER_ADDR");
  const auto port = variable("MASTER_PORT");
  if (!address || !port) return no_address(job, "MASTER_ADDR and MASTER_PORT");
  const bool local = *address == "localhost" || address->starts_with("127.");
  if (local && !variable("LOCAL_WORLD_SIZE")) {
    job.local_rank = job.rank.value();
    job.local_size = job.size;
  }
  job.id = run.value_or("") + " at " + *address + ":" + *port;
  return find_meeting_point(job);
}

Result<void> from_open_mpi(Job& job) {
  job.started_by = "Open MPI";
  const Numbering names{"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
                        "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"};
  if (auto read = read_numbering(names, job); !read) return read.error();
  const auto id =
      first_variable({"PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid", "OMPI_MCA_orte_ess_jobid"});
  job.id = "Open MPI " + (id ? *id : launcher_identity("OMPI_COMM_WORLD_RANK"));
  return find_meeting_point(job);
}

/// MPICH and its relatives (Intel MPI, MVAPICH), whose launcher is Hydra.
Result<void> from_mpich(Job& job) {
  job.started_by = "MPICH";
  const Numbering names{"PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"};
  if (auto read = read_numbering(names, job); !read) return read.error();
  if (job.local_size == job.size) {
    job.id = "MPICH " + launcher_identity("PMI_RANK");
    return find_meeting_point(job);
  }
  // Nothing that Hydra sets is the same on two hosts and different in two jobs.
  const auto address = variable("MASTER_ADDR");
  const auto port = variable("MASTER_PORT");
  if (!address || !port) return no_address(job, "MASTER_ADDR and MASTER_PORT");
  job.id = "MPICH at " + *address + ":" + *port;
  return find_meeting_point(job);
}

Result<void> read_slurm_local_size(Job& job, bool one_node) {
  if (one_node) job.local_size = job.size;
  const auto counts_text = first_variable({"SLURM_STEP_TASKS_PER_NODE", "SLURM_TASKS_PER_NODE"});
  if (!counts_text) return {};
  const auto counts = expand_task_counts(*counts_text);
  if (!counts || counts->empty()) {
    return invalid("SLURM_TASKS_PER_NODE is '" + *counts_text +
                   "', allowed is a list as in 2(x3),1.");
  }
  const auto node = integer_variable("SLURM_NODEID", 0, static_cast<int>(counts->size()) - 1, 0);
  if (!node) return node.error();
  job.local_size = std::clamp((*counts)[static_cast<std::size_t>(*node)], 1, job.size);
  return {};
}

Result<void> from_slurm(Job& job) {
  job.started_by = "Slurm";
  const char* const size =
      variable("SLURM_STEP_NUM_TASKS") ? "SLURM_STEP_NUM_TASKS" : "SLURM_NTASKS";
  const Numbering names{"SLURM_PROCID", size, "SLURM_LOCALID", "FARANDOLE_LOCAL_SIZE"};
  if (auto read = read_numbering(names, job); !read) return read.error();
  const auto list = first_variable({"SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST"});
  if (list) {
    const auto hosts = expand_node_list(*list);
    if (!hosts) {
      return invalid("SLURM_JOB_NODELIST is '" + *list + "', allowed is a list as in n[03-07,9].");
    }
    if (auto read = read_slurm_local_size(job, hosts->size() == 1); !read) return read.error();
    job.address = hosts->front();
  }
  job.id = "Slurm " + variable("SLURM_JOB_ID").value_or("") + "." +
           variable("SLURM_STEP_ID").value_or("");
  return find_meeting_point(job);
}

/// A batch script sees most of Slurm's variables too; only a task of a step is one of many.
bool is_slurm_task() {
  const auto step = variable("SLURM_STEP_ID");
  constexpr std::size_t kOrdinaryStepDigits = 9;  // batch, extern and interactive have ten
  return variable("SLURM_PROCID") && step && step->size() <= kOrdinaryStepDigits;
}

Result<void> identify(Job& job) {
  if (variable("FARANDOLE_RANK") || variable("FARANDOLE_SIZE")) return from_farandole(job);
  if (variable("RANK") && variable("WORLD_SIZE")) return from_torchrun(job);
  if (variable("OMPI_COMM_WORLD_RANK")) return from_open_mpi(job);
  // Slurm's own start-up may set PMI_RANK too; Hydra's variables are complete.
  const bool hydra = variable("MPI_LOCALNRANKS").has_value();
  if (variable("PMI_RANK") && (hydra || !is_slurm_task())) return from_mpich(job);
  if (is_slurm_task()) return from_slurm(job);
  job.started_by = "alone";
  job.id = "alone";
  return {};
}

Result<void> read_settings(Job& job) {
  for (const auto& [name, target] : {std::pair("FARANDOLE_TIMEOUT", &job.timeout),
                                     std::pair("FARANDOLE_START_TIMEOUT", &job.start_timeout)}) {
    const auto seconds = number_setting(name);
    if (!seconds) return seconds.error();
    // More than a year is for ever, and stays within what the clock can add.
    constexpr double kSecondsMax = 366.0 * 24 * 3600;
    *target = std::chrono::milliseconds(
        static_cast<std::int64_t>(std::min(*seconds, kSecondsMax) * 1000));
  }
  auto interface = text_setting("FARANDOLE_INTERFACE");
  if (!interface) return interface.error();
  job.interface = *std::move(interface);
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
  if (auto read = read_settings(job); !read) return read.error();
  if (const auto name = variable("FARANDOLE_JOB")) job.id = *name;
  if (const auto point = variable("FARANDOLE_RENDEZVOUS")) {
    if (auto read = read_rendezvous(*point, job); !read) return read.error();
  }
  if (job.size == 1) return job;
  auto secret = job_secret();
  if (!secret) return secret.error();
  job.secret = *std::move(secret);
  return job;
}

}  // namespace farandole
