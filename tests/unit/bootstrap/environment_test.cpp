// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>

#include "bootstrap/starters.hpp"
#include "bootstrap/variables.hpp"
#include "farandole/job.hpp"
#include "unit/bootstrap/variables.hpp"

namespace farandole::test {
namespace {

using Variables = std::map<std::string, std::string>;

/// The job of a process that sees `variables` and knows a secret.
Result<Job> job_with(Variables variables) {
  variables.emplace("FARANDOLE_SECRET", "s");
  const Environment environment(variables);
  return job_from_environment();
}

Job good_job(const Variables& variables) {
  auto job = job_with(variables);
  EXPECT_TRUE(job) << job.error().message;
  return job ? *job : Job{};
}

/// The message of the error that `variables` give.
std::string complaint(const Variables& variables) {
  const auto job = job_with(variables);
  if (job) return "no error";
  EXPECT_EQ(job.error().kind, ErrorKind::kInvalidArgument);
  return job.error().message;
}

void expect_numbers(const Job& job, int rank, int size, int local_rank, int local_size) {
  EXPECT_EQ(job.rank, Rank{rank});
  EXPECT_EQ(job.size, size);
  EXPECT_EQ(job.local_rank, local_rank);
  EXPECT_EQ(job.local_size, local_size);
}

const Variables kFarandole = {
    {"FARANDOLE_RANK", "1"},       {"FARANDOLE_SIZE", "4"},
    {"FARANDOLE_LOCAL_RANK", "1"}, {"FARANDOLE_LOCAL_SIZE", "4"},
    {"FARANDOLE_JOB", "job 7"},    {"FARANDOLE_RENDEZVOUS", "127.0.0.1:4000"},
    {"FARANDOLE_LISTEN_FD", "5"},  {"FARANDOLE_LAUNCHER_FD", "6"},
    {"FARANDOLE_TIMEOUT", "2.5"},  {"FARANDOLE_START_TIMEOUT", "7"}};
const Variables kTorchrun = {{"RANK", "5"},
                             {"WORLD_SIZE", "8"},
                             {"LOCAL_RANK", "1"},
                             {"LOCAL_WORLD_SIZE", "4"},
                             {"MASTER_ADDR", "node1"},
                             {"MASTER_PORT", "29500"},
                             {"TORCHELASTIC_RUN_ID", "run9"}};
const Variables kOpenMpi = {{"OMPI_COMM_WORLD_RANK", "2"},
                            {"OMPI_COMM_WORLD_SIZE", "3"},
                            {"OMPI_COMM_WORLD_LOCAL_RANK", "2"},
                            {"OMPI_COMM_WORLD_LOCAL_SIZE", "3"},
                            {"PMIX_NAMESPACE", "prterun-host-99@1"}};
const Variables kMpich = {{"PMI_RANK", "1"},        {"PMI_SIZE", "2"}, {"MPI_LOCALRANKID", "1"},
                          {"MPI_LOCALNRANKS", "2"}, {"PMI_FD", "9"},   {"HYDI_CONTROL_FD", "7"}};
const Variables kSlurm = {{"SLURM_PROCID", "3"},
                          {"SLURM_NTASKS", "5"},
                          {"SLURM_LOCALID", "1"},
                          {"SLURM_NODEID", "1"},
                          {"SLURM_JOB_ID", "77"},
                          {"SLURM_STEP_ID", "0"},
                          {"SLURM_TASKS_PER_NODE", "2(x2),1"},
                          {"SLURM_STEP_NODELIST", "node[03-05]"}};

Variables with(Variables variables, const std::string& name, const std::string& value) {
  variables[name] = value;
  return variables;
}
Variables without(Variables variables, const std::string& name) {
  variables.erase(name);
  return variables;
}

// Goal: a process that nobody launched is a job of one and needs no secret.
// Method: an empty environment, in which even a home directory is missing.
TEST(JobFromEnvironment, AloneWithoutALauncher) {
  const Environment environment({});
  const auto job = job_from_environment();
  ASSERT_TRUE(job) << job.error().message;
  expect_numbers(*job, 0, 1, 0, 1);
  EXPECT_EQ(job->started_by, "alone");
  EXPECT_EQ(job->timeout, std::chrono::seconds(30));
  EXPECT_EQ(job->start_timeout, std::chrono::seconds(120));
}

// Goal: our own launcher's variables are read, all of them, and win over others'.
// Method: set them together with torchrun's and Open MPI's.
TEST(JobFromEnvironment, FarandoleRun) {
  Variables all = kFarandole;
  all.insert(kTorchrun.begin(), kTorchrun.end());
  all.insert(kOpenMpi.begin(), kOpenMpi.end());
  const Job job = good_job(all);
  expect_numbers(job, 1, 4, 1, 4);
  EXPECT_EQ(job.started_by, "farandole run");
  EXPECT_EQ(job.id, "job 7");
  EXPECT_EQ(job.address, "127.0.0.1");
  EXPECT_EQ(job.port, 4000);
  EXPECT_EQ(job.port_count, 1);
  EXPECT_EQ(job.listen_fd, 5);
  EXPECT_EQ(job.launcher_fd, 6);
  EXPECT_EQ(job.secret.view(), "s");
  EXPECT_EQ(job.timeout, std::chrono::milliseconds(2500));
  EXPECT_EQ(job.start_timeout, std::chrono::seconds(7));
  EXPECT_EQ(good_job(with(kFarandole, "FARANDOLE_RENDEZVOUS", "[::1]:9")).address, "::1");
}

// Goal: torchrun's variables work, at ports that its own store does not hold; so does a job
// whose variables were set by hand.
// Method: two nodes; one node; no torchrun; the last port there is.
TEST(JobFromEnvironment, Torchrun) {
  const Job job = good_job(kTorchrun);
  expect_numbers(job, 5, 8, 1, 4);
  EXPECT_EQ(job.started_by, "torchrun");
  EXPECT_EQ(job.address, "node1");
  EXPECT_EQ(job.port, 29501);
  EXPECT_EQ(job.port_count, 16);
  EXPECT_NE(job.id, good_job(with(kTorchrun, "TORCHELASTIC_RUN_ID", "run10")).id);
  EXPECT_NE(job.id, good_job(with(kTorchrun, "MASTER_PORT", "29501")).id);
  EXPECT_EQ(good_job(with(kTorchrun, "LOCAL_WORLD_SIZE", "8")).address, "127.0.0.1");
  EXPECT_EQ(good_job(with(kTorchrun, "MASTER_PORT", "65530")).port_count, 5);

  Variables by_hand = {
      {"RANK", "1"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "localhost"}, {"MASTER_PORT", "5000"}};
  const Job hand = good_job(by_hand);
  expect_numbers(hand, 1, 2, 1, 2);
  EXPECT_EQ(hand.started_by, "RANK and WORLD_SIZE");
  expect_numbers(good_job(with(by_hand, "MASTER_ADDR", "node1")), 1, 2, 0, 1);
  expect_numbers(good_job({{"RANK", "0"}, {"WORLD_SIZE", "1"}}), 0, 1, 0, 1);
}

// Goal: Open MPI's variables work; jobs on one host meet at a port that follows from their id.
// Method: two ids; then two hosts, with and without an address.
TEST(JobFromEnvironment, OpenMpi) {
  const Job job = good_job(kOpenMpi);
  expect_numbers(job, 2, 3, 2, 3);
  EXPECT_EQ(job.started_by, "Open MPI");
  EXPECT_EQ(job.address, "127.0.0.1");
  EXPECT_GE(job.port, 20000);
  EXPECT_LE(job.port + job.port_count, 32768);
  EXPECT_EQ(good_job(with(kOpenMpi, "OMPI_COMM_WORLD_RANK", "1")).port, job.port);
  EXPECT_NE(good_job(with(kOpenMpi, "PMIX_NAMESPACE", "prterun-host-99@2")).port, job.port);

  const Variables spread =
      with(with(kOpenMpi, "OMPI_COMM_WORLD_LOCAL_SIZE", "1"), "OMPI_COMM_WORLD_LOCAL_RANK", "0");
  EXPECT_NE(complaint(spread).find("export MASTER_ADDR"), std::string::npos);
  EXPECT_EQ(good_job(with(spread, "MASTER_ADDR", "10.0.0.1")).address, "10.0.0.1");
}

// Goal: MPICH's variables work; the job's id is the same in all processes of one launcher, also
// behind wrapper scripts, though Hydra names the job nowhere.
// Method: several hosts; then ask from a child and from a grandchild of this process.
TEST(JobFromEnvironment, Mpich) {
  const Job job = good_job(kMpich);
  expect_numbers(job, 1, 2, 1, 2);
  EXPECT_EQ(job.started_by, "MPICH");
  EXPECT_EQ(job.address, "127.0.0.1");
  EXPECT_EQ(job.port_count, 20);
  const Variables spread = with(kMpich, "MPI_LOCALNRANKS", "1");
  EXPECT_NE(complaint(with(spread, "MPI_LOCALRANKID", "0")).find("MASTER_PORT"), std::string::npos);
  const Job far = good_job(
      with(with(with(spread, "MPI_LOCALRANKID", "0"), "MASTER_ADDR", "n1"), "MASTER_PORT", "7000"));
  EXPECT_EQ(far.address, "n1");
  EXPECT_EQ(far.port, 7001);
}

// Goal: every starter's own variables make a job, on one host as on several.
// Method: what each sets for rank 1 of 2 on one host, and for rank 5 of 8, the second of 4 on its
// host. All processes of one job give it one name, two jobs never. MPI's own environments are in
// tests/process/test_starters.py, with the programs themselves.
TEST(JobFromEnvironment, EveryStarter) {
  struct Case {
    std::string started_by;
    Variables names;  // of rank, size, local rank, local size: by these words
    Variables others;
    bool names_its_job;
  };
  const Case cases[] = {
      {"horovodrun",
       {{"rank", "HOROVOD_RANK"},
        {"size", "HOROVOD_SIZE"},
        {"local_rank", "HOROVOD_LOCAL_RANK"},
        {"local_size", "HOROVOD_LOCAL_SIZE"}},
       {{"HOROVOD_GLOO_RENDEZVOUS_ADDR", "10.0.0.1"}, {"HOROVOD_GLOO_RENDEZVOUS_PORT", "4711"}},
       true},
      {"jsrun",
       {{"rank", "JSM_NAMESPACE_RANK"},
        {"size", "JSM_NAMESPACE_SIZE"},
        {"local_rank", "JSM_NAMESPACE_LOCAL_RANK"},
        {"local_size", "JSM_NAMESPACE_LOCAL_SIZE"}},
       {{"LSB_JOBID", "77"}, {"PMIX_NAMESPACE", "3"}},
       true},
      {"MVAPICH",
       {{"rank", "MV2_COMM_WORLD_RANK"},
        {"size", "MV2_COMM_WORLD_SIZE"},
        {"local_rank", "MV2_COMM_WORLD_LOCAL_RANK"},
        {"local_size", "MV2_COMM_WORLD_LOCAL_SIZE"}},
       {},
       false},
      {"PALS",
       {{"rank", "PALS_RANKID"},
        {"size", "PMI_SIZE"},
        {"local_rank", "PALS_LOCAL_RANKID"},
        {"local_size", "PMI_LOCAL_SIZE"}},
       {{"PALS_APID", "5e1"}, {"PMI_RANK", "0"}, {"PMI_LOCAL_RANK", "0"}},
       true},
      {"MPICH",  // as Cray's, without MPI_LOCALNRANKS
       {{"rank", "PMI_RANK"},
        {"size", "PMI_SIZE"},
        {"local_rank", "PMI_LOCAL_RANK"},
        {"local_size", "PMI_LOCAL_SIZE"}},
       {},
       false},
  };
  for (const Case& one : cases) {
    SCOPED_TRACE(one.started_by);
    const auto variables = [&](const char* rank, const char* size, const char* local_rank,
                               const char* local_size) {
      Variables all = one.others;
      all[one.names.at("rank")] = rank;
      all[one.names.at("size")] = size;
      all[one.names.at("local_rank")] = local_rank;
      all[one.names.at("local_size")] = local_size;
      return all;
    };
    const Variables near = variables("1", "2", "1", "2");
    expect_numbers(good_job(near), 1, 2, 1, 2);
    EXPECT_EQ(good_job(near).started_by, one.started_by);
    EXPECT_EQ(good_job(near).address, "127.0.0.1");
    EXPECT_EQ(good_job(near).id, good_job(with(near, one.names.at("rank"), "0")).id);
    if (one.names_its_job) {
      const std::string& name = one.others.begin()->first;
      EXPECT_NE(good_job(near).id, good_job(with(near, name, "another")).id);
    }

    const Variables far = variables("5", "8", "1", "4");
    const std::string lost = complaint(far);
    EXPECT_NE(lost.find(one.names.at("rank") + "=5"), std::string::npos) << lost;
    EXPECT_NE(lost.find("export MASTER_ADDR"), std::string::npos) << lost;
    const Variables met = with(with(far, "MASTER_ADDR", "n1"), "MASTER_PORT", "7000");
    expect_numbers(good_job(met), 5, 8, 1, 4);
    EXPECT_EQ(good_job(met).address, "n1");
    EXPECT_EQ(good_job(met).port, 7001);
    EXPECT_EQ(good_job(with(far, "FARANDOLE_RENDEZVOUS", "n2:9")).address, "n2");
  }
}

TEST(JobFromEnvironment, Flux) {
  const Variables flux = {{"FLUX_TASK_RANK", "1"}, {"FLUX_TASK_LOCAL_ID", "1"},
                          {"FLUX_JOB_SIZE", "2"},  {"FLUX_JOB_NNODES", "1"},
                          {"FLUX_JOB_ID", "f7"},   {"PMI_RANK", "1"},
                          {"PMI_SIZE", "2"}};
  expect_numbers(good_job(flux), 1, 2, 1, 2);
  EXPECT_EQ(good_job(flux).started_by, "Flux");
  EXPECT_NE(good_job(flux).id, good_job(with(flux, "FLUX_JOB_ID", "f8")).id);
  const Variables far = with(flux, "FLUX_JOB_NNODES", "2");
  EXPECT_NE(complaint(far).find("FLUX_TASK_RANK=1, FLUX_JOB_SIZE=2 of Flux"), std::string::npos);
  EXPECT_EQ(good_job(with(far, "MASTER_ADDR", "n1")).address, "n1");
}

// Goal: a process that its starter numbers is never taken for one that is alone.
// Method: half of what each starter of the table tells; and what starters set that do not number
// processes. The complaint says what was seen.
TEST(JobFromEnvironment, OneOfSeveralIsNeverAlone) {
  for (const Starter& starter : starters()) {
    if (starter.rank[0] == nullptr || starter.applies != nullptr) continue;
    for (const char* value : {"0", "1"}) {
      const std::string message = complaint({{starter.rank[0], value}});
      const std::string seen = std::string(starter.rank[0]) + "=" + value;
      EXPECT_NE(message.find(seen), std::string::npos) << message;
      EXPECT_NE(message.find("RANK, WORLD_SIZE"), std::string::npos) << message;
    }
    if (starter.size[0] == nullptr) continue;
    const std::string message = complaint({{starter.size[0], "2"}});
    EXPECT_NE(message.find(std::string(starter.rank[0]) + " is not set"), std::string::npos)
        << message;
  }
  const Variables several[] = {
      {{"PMIX_RANK", "0"}, {"PMIX_NAMESPACE", "prterun-1"}},
      {{"PALS_RANKID", "1"}, {"PMIX_RANK", "1"}, {"PALS_LOCAL_SIZE", "4"}},
      {{"PET_NNODES", "2"}, {"PET_NODE_RANK", "0"}, {"PET_NPROC_PER_NODE", "1"}},
      {{"PET_NNODES", "1"}, {"PET_NPROC_PER_NODE", "4"}},
      {{"PET_NNODES", "1:4"}},
      {{"PET_NPROC_PER_NODE", "auto"}},
      {{"SM_HOSTS", R"(["algo-1", "algo-2"])"}, {"SM_CURRENT_HOST", "algo-2"}},
      {{"TORCHELASTIC_RUN_ID", "x"}, {"WORLD_SIZE", "2"}},
  };
  for (const Variables& variables : several) {
    const std::string message = complaint(variables);
    EXPECT_NE(message.find("not the only process"), std::string::npos) << message;
  }
  const Variables alone[] = {
      {{"WORLD_SIZE", "1"}},
      {{"PET_NNODES", "1"}, {"PET_NPROC_PER_NODE", "1"}, {"PET_NODE_RANK", "0"}},
      {{"PET_NNODES", "1:1"}},
      {{"SM_HOSTS", R"(["algo-1"])"}, {"SM_NUM_GPUS", "2"}},
      {{"MV2_COMM_WORLD_LOCAL_SIZE", "16"}},
      {{"SLURM_NTASKS", "4"}, {"SLURM_PROCID", "0"}},  // a batch script
      {{"PMIX_RANK", ""}},
  };
  for (const Variables& variables : alone) {
    EXPECT_EQ(good_job(variables).started_by, "alone");
  }
  // What is whole counts before what is half.
  EXPECT_EQ(good_job(with(kOpenMpi, "RANK", "9")).started_by, "Open MPI");
  EXPECT_EQ(good_job(with(kSlurm, "PMIX_RANK", "3")).started_by, "Slurm");
  EXPECT_EQ(good_job(with(with(kMpich, "HOROVOD_RANK", "0"), "PET_NNODES", "2")).started_by,
            "MPICH");
  EXPECT_EQ(good_job({{"FARANDOLE_RANK", "0"}, {"FARANDOLE_SIZE", "1"}, {"PMIX_RANK", "0"}}).size,
            1);
}

/// The lines that the shell's `command` writes.
std::vector<std::string> lines_of(const std::string& command) {
  FILE* const pipe = popen(command.c_str(), "r");
  std::vector<std::string> lines;
  char line[256];
  while (fgets(line, sizeof line, pipe) != nullptr) lines.emplace_back(line);
  pclose(pipe);
  return lines;
}

// Goal: as above, with real processes.
// Method: this program, run as a rank directly and behind a wrapper shell, by a shell that is
// the launcher of both since it has no PMI_RANK; both must name it.
TEST(JobFromEnvironment, MpichsLauncherIsTheSameBehindWrappers) {
  if (std::getenv("FARANDOLE_TEST_PRINT_IDENTITY") != nullptr) {
    std::printf("%s\n", launcher_identity("PMI_RANK").c_str());
    std::fflush(stdout);
    _exit(0);
  }
  const std::string rank =
      "PMI_RANK=0 FARANDOLE_TEST_PRINT_IDENTITY=1 GTEST_TOTAL_SHARDS=1 GTEST_SHARD_INDEX=0 ";
  const std::string program =
      "/proc/" + std::to_string(getpid()) +
      "/exe --gtest_filter=JobFromEnvironment.MpichsLauncherIsTheSameBehindWrappers | grep since";
  const auto lines = lines_of(rank + program + "; " + rank + "sh -c '" + program + "; true'");
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_EQ(lines[0], lines[1]);
}

// Goal: Slurm's variables work, for tasks of a step only.
// Method: a step on three nodes, a step on one, a step of an allocation with more tasks, and a
// batch script, which is a job of one.
TEST(JobFromEnvironment, Slurm) {
  const Job job = good_job(kSlurm);
  expect_numbers(job, 3, 5, 1, 2);
  EXPECT_EQ(job.started_by, "Slurm");
  EXPECT_EQ(job.address, "node03");
  EXPECT_EQ(job.id, "Slurm 77.0");
  EXPECT_NE(good_job(with(kSlurm, "SLURM_STEP_ID", "1")).port, job.port);
  EXPECT_EQ(good_job(with(kSlurm, "SLURM_STEP_NUM_TASKS", "4")).size, 4);

  Variables one = with(kSlurm, "SLURM_STEP_NODELIST", "node7");
  one = with(without(one, "SLURM_NODEID"), "SLURM_TASKS_PER_NODE", "5");
  expect_numbers(good_job(one), 3, 5, 1, 5);
  EXPECT_EQ(good_job(one).address, "127.0.0.1");

  EXPECT_EQ(good_job(without(kSlurm, "SLURM_STEP_ID")).started_by, "alone");
  EXPECT_EQ(good_job(with(kSlurm, "SLURM_STEP_ID", "4294967291")).started_by, "alone");
  EXPECT_EQ(good_job(with(kSlurm, "PMI_RANK", "3")).started_by, "Slurm");
}

// Goal: what contradicts itself is refused with the variable, its value and what is allowed.
// Method: one bad value at a time.
TEST(JobFromEnvironment, NamesWhatIsWrong) {
  struct Case {
    Variables variables;
    std::string name, value;
    std::string allowed;
  };
  const Case cases[] = {
      {kFarandole, "FARANDOLE_RANK", "4", "0 to 3"},
      {kFarandole, "FARANDOLE_RANK", "-1", "0 to 3"},
      {kFarandole, "FARANDOLE_RANK", "1x", "0 to 3"},
      {kFarandole, "FARANDOLE_RANK", " 1", "0 to 3"},
      {kFarandole, "FARANDOLE_RANK", "99999999999999999999", "0 to 3"},
      {kFarandole, "FARANDOLE_SIZE", "0", "from 1"},
      {kFarandole, "FARANDOLE_LOCAL_RANK", "4", "0 to 3"},
      {kFarandole, "FARANDOLE_LOCAL_SIZE", "5", "1 to 4"},
      {kFarandole, "FARANDOLE_RENDEZVOUS", "host", "host:port"},
      {kFarandole, "FARANDOLE_RENDEZVOUS", "host:", "host:port"},
      {kFarandole, "FARANDOLE_RENDEZVOUS", ":80", "host:port"},
      {kFarandole, "FARANDOLE_RENDEZVOUS", "host:70000", "65535"},
      {kFarandole, "FARANDOLE_RENDEZVOUS", "::1:80", "[address]:port"},
      {kFarandole, "FARANDOLE_LISTEN_FD", "-2", "0 to"},
      {kFarandole, "FARANDOLE_LAUNCHER_FD", "x", "0 to"},
      {kFarandole, "FARANDOLE_TIMEOUT", "soon", "0.5"},
      {kFarandole, "FARANDOLE_START_TIMEOUT", "0", "0.1"},
      {kTorchrun, "WORLD_SIZE", "many", "from 1"},
      {kTorchrun, "RANK", "8", "0 to 7"},
      {kTorchrun, "MASTER_PORT", "65535", "1 to 65534"},
      {kOpenMpi, "OMPI_COMM_WORLD_RANK", "3", "0 to 2"},
      {kMpich, "PMI_RANK", "2", "0 to 1"},
      {kSlurm, "SLURM_PROCID", "5", "0 to 4"},
      {kSlurm, "SLURM_STEP_NODELIST", "node[3", "n[03-07,9]"},
      {kSlurm, "SLURM_TASKS_PER_NODE", "2(x", "2(x3),1"},
      {kSlurm, "SLURM_NODEID", "3", "0 to 2"},
  };
  for (const Case& one : cases) {
    const std::string message = complaint(with(one.variables, one.name, one.value));
    EXPECT_NE(message.find(one.name.substr(0, 5)), std::string::npos) << message;
    EXPECT_NE(message.find("'" + one.value + "'"), std::string::npos) << message;
    EXPECT_NE(message.find(one.allowed), std::string::npos) << message;
  }
  EXPECT_NE(complaint(without(kFarandole, "FARANDOLE_SIZE")).find("FARANDOLE_SIZE is not set"),
            std::string::npos);
  EXPECT_NE(complaint(without(kFarandole, "FARANDOLE_RANK")).find("FARANDOLE_RANK is not set"),
            std::string::npos);
  EXPECT_NE(complaint(without(kFarandole, "FARANDOLE_RENDEZVOUS")).find("RENDEZVOUS is not set"),
            std::string::npos);
  EXPECT_NE(complaint(without(kTorchrun, "MASTER_PORT")).find("MASTER_PORT"), std::string::npos);
}

// Goal: the name and the meeting point of a job can be set by hand with any launcher.
// Method: set them with Open MPI's variables.
TEST(JobFromEnvironment, OwnVariablesOverrideALaunchers) {
  const Job job =
      good_job(with(with(kOpenMpi, "FARANDOLE_JOB", "mine"), "FARANDOLE_RENDEZVOUS", "10.1.1.1:5"));
  EXPECT_EQ(job.id, "mine");
  EXPECT_EQ(job.address, "10.1.1.1");
  EXPECT_EQ(job.port, 5);
  EXPECT_EQ(job.port_count, 1);
}

}  // namespace
}  // namespace farandole::test
