// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "bootstrap/starters.hpp"

#include <algorithm>

#include "bootstrap/slurm.hpp"
#include "bootstrap/variables.hpp"

namespace farandole {
namespace {

using Meeting = Starter::Meeting;

/// A batch script sees most of Slurm's variables too; only a task of a step is one of many.
bool is_slurm_task(const Lookup& variable) {
  const auto step = variable("SLURM_STEP_ID");
  constexpr std::size_t kOrdinaryStepDigits = 9;  // batch, extern and interactive have ten
  return variable("SLURM_PROCID") && step && step->size() <= kOrdinaryStepDigits;
}

/// Slurm's own start-up may set PMI_RANK too, but not all of Hydra's variables.
bool is_hydra(const Lookup& variable) {
  return variable("MPI_LOCALNRANKS") || !is_slurm_task(variable);
}

bool is_torchrun(const Lookup& variable) {
  return variable("TORCHELASTIC_RUN_ID").has_value();
}

Result<void> read_slurm_local_size(Job& job, bool one_node) {
  if (one_node) job.local_size = job.size;
  const auto counts_text = first_variable({"SLURM_STEP_TASKS_PER_NODE", "SLURM_TASKS_PER_NODE"});
  if (!counts_text) return {};
  const auto counts = expand_task_counts(*counts_text);
  if (!counts || counts->empty()) {
    return Error{ErrorKind::kInvalidArgument, "SLURM_TASKS_PER_NODE is '" + *counts_text +
                                                  "', allowed is a list as in 2(x3),1."};
  }
  const auto node = integer_variable("SLURM_NODEID", 0, static_cast<int>(counts->size()) - 1, 0);
  if (!node) return node.error();
  job.local_size = std::clamp((*counts)[static_cast<std::size_t>(*node)], 1, job.size);
  return {};
}

Result<void> complete_slurm(Job& job) {
  const auto list = first_variable({"SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST"});
  if (!list) return {};
  const auto hosts = expand_node_list(*list);
  if (!hosts) {
    return Error{ErrorKind::kInvalidArgument,
                 "SLURM_JOB_NODELIST is '" + *list + "', allowed is a list as in n[03-07,9]."};
  }
  job.address = hosts->front();
  return read_slurm_local_size(job, hosts->size() == 1);
}

Result<void> complete_flux(Job& job) {
  if (variable("FLUX_JOB_NNODES") == "1") {
    job.local_rank = job.rank.value();
    job.local_size = job.size;
  }
  return {};
}

// Sources of the names: torch.distributed's documentation of env:// and torchrun's of its
// options (PET_); Horovod, runner/gloo_run.py; Open MPI, mpirun(1); IBM Spectrum MPI and jsrun(1);
// MVAPICH2, src/pm/mpirun/mpispawn.c; HPE Cray PALS, mpiexec(1); Flux, flux-environment(7); MPICH,
// src/pm/hydra; Slurm, srun(1); aprun(1); PMIx standard, 4.2; SageMaker training toolkit,
// ENVIRONMENT_VARIABLES.md.
constexpr std::array kStarters = {
    Starter{.name = "farandole run",
            .meeting = Meeting::kOwn,
            .rank = {"FARANDOLE_RANK"},
            .size = {"FARANDOLE_SIZE"},
            .local_rank = {"FARANDOLE_LOCAL_RANK"},
            .local_size = {"FARANDOLE_LOCAL_SIZE"},
            .job = {"FARANDOLE_JOB"}},
    Starter{.name = "torchrun",
            .meeting = Meeting::kMaster,
            .rank = {"RANK"},
            .size = {"WORLD_SIZE"},
            .local_rank = {"LOCAL_RANK"},
            .local_size = {"LOCAL_WORLD_SIZE"},
            .job = {"TORCHELASTIC_RUN_ID"},
            .applies = is_torchrun},
    Starter{.name = "RANK and WORLD_SIZE",
            .meeting = Meeting::kMaster,
            .rank = {"RANK"},
            .size = {"WORLD_SIZE"},
            .local_rank = {"LOCAL_RANK"},
            .local_size = {"LOCAL_WORLD_SIZE"}},
    Starter{.name = "horovodrun",
            .meeting = Meeting::kHost,
            .rank = {"HOROVOD_RANK"},
            .size = {"HOROVOD_SIZE"},
            .local_rank = {"HOROVOD_LOCAL_RANK"},
            .local_size = {"HOROVOD_LOCAL_SIZE"},
            .job = {"HOROVOD_GLOO_RENDEZVOUS_ADDR"},
            .step = {"HOROVOD_GLOO_RENDEZVOUS_PORT"}},
    // Before Open MPI: jsrun sets Open MPI's names as well, but none that names the job.
    Starter{.name = "jsrun",
            .meeting = Meeting::kHost,
            .rank = {"JSM_NAMESPACE_RANK"},
            .size = {"JSM_NAMESPACE_SIZE"},
            .local_rank = {"JSM_NAMESPACE_LOCAL_RANK"},
            .local_size = {"JSM_NAMESPACE_LOCAL_SIZE"},
            .job = {"LSB_JOBID"},
            .step = {"PMIX_NAMESPACE"}},
    Starter{.name = "Open MPI",
            .meeting = Meeting::kHost,
            .rank = {"OMPI_COMM_WORLD_RANK"},
            .size = {"OMPI_COMM_WORLD_SIZE"},
            .local_rank = {"OMPI_COMM_WORLD_LOCAL_RANK"},
            .local_size = {"OMPI_COMM_WORLD_LOCAL_SIZE"},
            .job = {"PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid", "OMPI_MCA_orte_ess_jobid"}},
    Starter{.name = "MVAPICH",
            .meeting = Meeting::kHost,
            .rank = {"MV2_COMM_WORLD_RANK"},
            .size = {"MV2_COMM_WORLD_SIZE"},
            .local_rank = {"MV2_COMM_WORLD_LOCAL_RANK"},
            .local_size = {"MV2_COMM_WORLD_LOCAL_SIZE"}},
    Starter{.name = "PALS",
            .meeting = Meeting::kHost,
            .rank = {"PALS_RANKID"},
            .size = {"PMI_SIZE"},
            .local_rank = {"PALS_LOCAL_RANKID", "PMI_LOCAL_RANK"},
            .local_size = {"PMI_LOCAL_SIZE", "PALS_LOCAL_SIZE"},
            .job = {"PALS_APID"}},
    Starter{.name = "Flux",
            .meeting = Meeting::kHost,
            .rank = {"FLUX_TASK_RANK"},
            .size = {"FLUX_JOB_SIZE"},
            .job = {"FLUX_JOB_ID"},
            .complete = complete_flux},
    // Hydra starts MPICH and its relatives, Intel MPI among them. It sets no variable that is equal
    // on all hosts of a job and differs between jobs.
    Starter{.name = "MPICH",
            .meeting = Meeting::kHost,
            .rank = {"PMI_RANK"},
            .size = {"PMI_SIZE"},
            .local_rank = {"MPI_LOCALRANKID", "PMI_LOCAL_RANK"},
            .local_size = {"MPI_LOCALNRANKS", "PMI_LOCAL_SIZE"},
            .applies = is_hydra},
    Starter{.name = "Slurm",
            .meeting = Meeting::kHost,
            .rank = {"SLURM_PROCID"},
            .size = {"SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"},
            .local_rank = {"SLURM_LOCALID"},
            .job = {"SLURM_JOB_ID"},
            .step = {"SLURM_STEP_ID"},
            .applies = is_slurm_task,
            .complete = complete_slurm},
    Starter{.name = "PMIx", .meeting = Meeting::kNone, .rank = {"PMIX_RANK"}},
    Starter{.name = "aprun", .meeting = Meeting::kNone, .rank = {"ALPS_APP_PE"}},
    Starter{.name = "settings of torchrun",
            .meeting = Meeting::kNone,
            .size = {"PET_NNODES", "PET_NPROC_PER_NODE"},
            .remedy = "they are for torchrun: start the script with it"},
    Starter{.name = "SageMaker",
            .meeting = Meeting::kNone,
            .size = {"SM_HOSTS"},
            .remedy = "start the script with distribution={'torch_distributed': {'enabled': True}} "
                      "of the estimator"},
};

/// Whether `size` stands for more than one process: a number, a range as in torchrun's 1:4, or a
/// list as SageMaker's. In doubt (torchrun's "auto") it does.
bool is_several(const std::string& size) {
  if (size.starts_with('[')) return size.find(',') != std::string::npos;
  return size.substr(size.rfind(':') + 1) != "1";
}

bool any_of_several(const Names& sizes, const Lookup& variable) {
  return std::ranges::any_of(sizes, [&](const char* name) {
    const auto value = name != nullptr ? variable(name) : std::nullopt;
    return value && is_several(*value);
  });
}

bool tells_all(const Starter& starter, const Lookup& variable) {
  return first_set(starter.rank, variable) && first_set(starter.size, variable);
}

/// Rank without size, or a size without a rank: this process is one of several, or may be.
bool tells_half(const Starter& starter, const Lookup& variable) {
  if (first_set(starter.size, variable)) return any_of_several(starter.size, variable);
  return first_set(starter.rank, variable) != nullptr;
}

}  // namespace

std::span<const Starter> starters() {
  return kStarters;
}

const Starter* starter_of(const Lookup& variable) {
  const Starter& own = kStarters.front();
  // No other starter sets our variables, so half of them is a mistake, whatever others tell.
  if (first_set(own.rank, variable) || first_set(own.size, variable)) return &own;
  for (const auto tells : {tells_all, tells_half}) {
    for (const Starter& starter : kStarters) {
      const bool applies = starter.applies == nullptr || starter.applies(variable);
      if (applies && tells(starter, variable)) return &starter;
    }
  }
  return nullptr;
}

const char* first_set(const Names& names, const Lookup& variable) {
  const auto found = std::ranges::find_if(
      names, [&](const char* name) { return name != nullptr && variable(name); });
  return found != names.end() ? *found : nullptr;
}

std::string what_it_told(const Starter& starter, const Lookup& variable) {
  std::string told;
  for (const Names& names : {starter.rank, starter.size}) {
    for (const char* name : names) {
      const auto value = name != nullptr ? variable(name) : std::nullopt;
      if (value) told += (told.empty() ? "" : ", ") + std::string(name) + "=" + *value;
    }
  }
  return told;
}

}  // namespace farandole
