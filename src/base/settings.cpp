// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "base/settings.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <numeric>

namespace farandole {
namespace {

using Type = Setting::Type;
constexpr double kMax = 1e15;

constexpr std::array kSettings = {
    Setting{"FARANDOLE_TIMEOUT", Type::kSeconds, "30", 0.5, kMax,
            "Seconds for which a peer may give no sign of life. A shorter outage ends nothing; "
            "after a quarter more it counts as failed. Data that its system does not acknowledge "
            "for as long, though it lives, end what the two ranks do together."},
    Setting{"FARANDOLE_OPERATION_TIMEOUT", Type::kSeconds, "1800", 0.1, kMax,
            "Seconds after which an operation that peers have not joined is an error."},
    Setting{"FARANDOLE_START_TIMEOUT", Type::kSeconds, "120", 0.1, kMax,
            "Seconds that start-up waits for all ranks."},
    Setting{"FARANDOLE_TRANSPORT", Type::kText, "auto", 0, 0,
            "What carries messages: auto (the fastest that reaches each peer) or the name of one "
            "transport, of those that `farandole run --help` lists."},
    Setting{"FARANDOLE_ALGORITHM", Type::kText, "auto", 0, 0,
            "Algorithm for every collective that has it; see `farandole algorithms`."},
    Setting{"FARANDOLE_SCHEDULE", Type::kText, "", 0, 0,
            "Files of schedules (docs/formats/schedule.md), with : between them. Calls that name "
            "no algorithm take the one for their collective, ranks and root. Every rank reads its "
            "own; all must be equal."},
    Setting{"FARANDOLE_TUNING", Type::kText, "", 0, 0,
            "File of choices of algorithms (docs/formats/tuning.md); rank 0 reads it for all."},
    Setting{"FARANDOLE_MACHINE", Type::kText, "", 0, 0,
            "Machine to plan by, a name or a file (docs/formats/machine.md); rank 0 reads it for "
            "all. For Python."},
    Setting{"FARANDOLE_CHECK", Type::kFlag, "0", 0, 0,
            "Compare the arguments of every collective across ranks before any byte moves."},
    Setting{"FARANDOLE_INTERFACE", Type::kText, "", 0, 0,
            "Network interface or address for our sockets; empty: the one that routes to rank 0."},
    Setting{"FARANDOLE_TCP_CONNECTIONS", Type::kInteger, "4", 1, 16,
            "TCP connections per pair of processes: the first for short messages, the last for "
            "answers, those between for data. Within a host at most 2."},
    Setting{"FARANDOLE_SHM_WITHOUT", Type::kText, "", 0, 0,
            "For measurements: ways of messages through shared memory that are not used, separated "
            "by commas; the same on all ranks (bench/ablation.py)."},
    Setting{"FARANDOLE_MEMORY", Type::kBytes, "64GiB", 1 << 20, 1e14,
            "Address space reserved for library-owned memory; pages are used once touched."},
    Setting{"FARANDOLE_CUDA_LIBRARY", Type::kText, "", 0, 0,
            "File of CUDA's driver; empty: libcuda.so.1, where the system finds it."},
    Setting{"FARANDOLE_DEVICE_WORDS", Type::kFlag, "1", 0, 0,
            "Streams of a GPU wait for calls on its memory. 0: the host waits instead, as it does "
            "where streams cannot wait for words in memory."},
    Setting{"FARANDOLE_SPIN", Type::kSeconds, "-1", -1, 10,
            "Seconds that a wait looks for messages before it sleeps; -1: 100 us."},
    Setting{"FARANDOLE_SECRET_FILE", Type::kText, "", 0, 0,
            "File (mode 0600) with the job's secret; empty: FARANDOLE_SECRET or a per-user file."},
    Setting{"FARANDOLE_SECRET", Type::kText, "", 0, 0,
            "The job's secret itself; set by `farandole run`."},
    Setting{"FARANDOLE_RANK", Type::kInteger, "", 0, 1e9, "This process's rank."},
    Setting{"FARANDOLE_SIZE", Type::kInteger, "", 1, 1e9, "Number of processes in the job."},
    Setting{"FARANDOLE_LOCAL_RANK", Type::kInteger, "", 0, 1e6, "Rank among those of this host."},
    Setting{"FARANDOLE_LOCAL_SIZE", Type::kInteger, "", 1, 1e6, "Ranks on this host."},
    Setting{"FARANDOLE_JOB", Type::kText, "", 0, 0, "Name of the job; two jobs never share it."},
    Setting{"FARANDOLE_RENDEZVOUS", Type::kText, "", 0, 0,
            "host:port where rank 0 listens for the others."},
    Setting{"FARANDOLE_LISTEN_FD", Type::kInteger, "", 0, 1e6,
            "Listening socket that rank 0 inherits; set by `farandole run`."},
    Setting{"FARANDOLE_LAUNCHER_FD", Type::kInteger, "", 0, 1e6,
            "Pipe that closes when the launcher dies; set by `farandole run`."},
    Setting{"FARANDOLE_LAUNCHER", Type::kText, "", 0, 0,
            "Mark by which what ranks have started is found when they end; set by `farandole "
            "run`."},
    Setting{"FARANDOLE_CYCLE_TIME", Type::kSeconds, "0.001", 0, 10,
            "Seconds that requests wait for others to travel with."},
    Setting{"FARANDOLE_FUSION_THRESHOLD", Type::kBytes, "128MiB", 0, 1e12,
            "Bytes up to which small requests travel as one; 0: each by itself."},
    Setting{"FARANDOLE_CACHE_CAPACITY", Type::kInteger, "1024", 0, 65536,
            "Response-cache entries; 0 disables the cache."},
    Setting{"FARANDOLE_STALL_WARNING", Type::kSeconds, "60", 0, kMax,
            "Seconds after which a request that some ranks have not made is reported; 0: never."},
    Setting{"FARANDOLE_STALL_SHUTDOWN", Type::kSeconds, "0", 0, kMax,
            "Seconds after which a request that some ranks have not made is an error; 0: never."},
    Setting{"FARANDOLE_TIMELINE", Type::kText, "", 0, 0,
            "File for the timeline; {rank} is replaced by the rank, else .rank-N is put before the "
            "suffix."},
    Setting{"FARANDOLE_AUTOTUNE", Type::kFlag, "0", 0, 0,
            "Try settings of coordination, fusion and algorithms while the job trains; keep the "
            "best."},
    Setting{"FARANDOLE_AUTOTUNE_LOG", Type::kText, "", 0, 0,
            "JSON file of what was tried; what it holds for this model and these ranks is used at "
            "once."},
    Setting{"FARANDOLE_AUTOTUNE_WARMUP_SAMPLES", Type::kInteger, "3", 0, 1e6,
            "Windows of steps that autotuning lets pass before it begins."},
    Setting{"FARANDOLE_AUTOTUNE_STEPS_PER_SAMPLE", Type::kInteger, "10", 1, 1e6,
            "Steps in a window, in which one choice of settings is measured."},
    Setting{"FARANDOLE_AUTOTUNE_MAX_SAMPLES", Type::kInteger, "20", 1, 1e6,
            "Windows after which autotuning keeps the best choice."},
    Setting{"FARANDOLE_LOG", Type::kText, "warning", 0, 0,
            "What is written to standard error: off, error, warning, info or debug."},
    Setting{"FARANDOLE_HOST_ID", Type::kText, "", 0, 0,
            "Overrides what tells whether two ranks share a host; for tests."},
};

Error bad(const Setting& setting, const std::string& value, const std::string& allowed) {
  return Error{ErrorKind::kInvalidArgument,
               std::string(setting.name) + " is '" + value + "', allowed is " + allowed + "."};
}

Result<const Setting*> find(std::string_view name) {
  for (const Setting& setting : kSettings) {
    if (setting.name == name) return &setting;
  }
  return Error{ErrorKind::kInternal, "no setting named " + std::string(name)};
}

std::string raw(const Setting& setting) {
  const char* value = std::getenv(std::string(setting.name).c_str());
  return value != nullptr && *value != '\0' ? value : std::string(setting.default_value);
}

/// Levenshtein distance: the letters to add, remove or change.
std::size_t distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 0; i < a.size(); ++i) {
    std::size_t diagonal = row[0]++;
    for (std::size_t j = 0; j < b.size(); ++j) {
      const std::size_t changed = diagonal + (a[i] == b[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({changed, diagonal + 1, row[j] + 1});
    }
  }
  return row.back();
}

/// Multiplier of a byte suffix, 0 if unknown.
double unit_bytes(std::string_view suffix) {
  if (suffix.empty() || suffix == "B") return 1;
  if (suffix == "K" || suffix == "KiB") return 1024.0;
  if (suffix == "M" || suffix == "MiB") return 1024.0 * 1024;
  if (suffix == "G" || suffix == "GiB") return 1024.0 * 1024 * 1024;
  if (suffix == "KB") return 1e3;
  if (suffix == "MB") return 1e6;
  if (suffix == "GB") return 1e9;
  return 0;
}

}  // namespace

std::span<const Setting> settings() {
  return kSettings;
}

Result<std::string> text_setting(std::string_view name) {
  auto setting = find(name);
  if (!setting) return setting.error();
  return raw(**setting);
}

Result<double> number_setting(std::string_view name) {
  auto found = find(name);
  if (!found) return found.error();
  const Setting& setting = **found;
  const std::string value = raw(setting);
  double number = 0;
  const auto [end, failure] = std::from_chars(value.data(), value.data() + value.size(), number);
  const std::string_view suffix(end, static_cast<std::size_t>(value.data() + value.size() - end));
  const double unit = setting.type == Type::kBytes ? unit_bytes(suffix) : suffix.empty() ? 1 : 0;
  const std::string range = "a number from " + std::to_string(setting.low) + " to " +
                            std::to_string(setting.high) +
                            (setting.type == Type::kBytes ? " with B, KiB, MiB or GiB" : "");
  if (failure != std::errc() || unit == 0) return bad(setting, value, range);
  number *= unit;
  // Written so that NaN, which compares with nothing, is out of range.
  const bool inside = number >= setting.low && number <= setting.high;
  if (!inside || (setting.type == Type::kInteger && number != std::floor(number))) {
    return bad(setting, value, range);
  }
  return number;
}

std::vector<std::string> unknown_settings() {
  std::vector<std::string> found;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    const std::string_view name = text.substr(0, text.find('='));
    if (!name.starts_with("FARANDOLE_") || name.starts_with("FARANDOLE_TEST_")) continue;
    const Setting& nearest = *std::min_element(
        kSettings.begin(), kSettings.end(), [name](const Setting& a, const Setting& b) {
          return distance(name, a.name) < distance(name, b.name);
        });
    if (nearest.name == name) continue;
    found.push_back(std::string(name) + " is no setting and has no effect; the nearest is " +
                    std::string(nearest.name) + ", `farandole settings` lists all.");
  }
  std::sort(found.begin(), found.end());
  return found;
}

Result<bool> flag_setting(std::string_view name) {
  auto found = find(name);
  if (!found) return found.error();
  std::string value = raw(**found);
  for (char& c : value) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  if (value == "1" || value == "true" || value == "yes" || value == "on") return true;
  if (value == "0" || value == "false" || value == "no" || value == "off") return false;
  return bad(**found, value, "0, 1, true, false, yes, no, on or off");
}

}  // namespace farandole
