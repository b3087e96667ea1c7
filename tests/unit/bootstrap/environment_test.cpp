// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>

#include "bootstrap/job.hpp"
#include "bootstrap/variables.hpp"
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
  EXPECT_EQ(job.secret, "s");
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
  const std::string rank = "PMI_RANK=0 FARANDOLE_TEST_PRINT_IDENTITY=1 ";
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
