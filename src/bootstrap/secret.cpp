// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "bootstrap/secret.hpp"

#include <fcntl.h>
#include <linux/fs.h>
#include <pwd.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>
#include <string_view>

#include "base/settings.hpp"
#include "bootstrap/invalid.hpp"
#include "bootstrap/socket.hpp"

namespace farandole {
namespace {

constexpr std::size_t kSecretBytes = 32;
constexpr std::size_t kFileBytesMax = 4096;

Error system_error(const std::string& doing, const std::string& path) {
  return invalid("cannot " + doing + " the secret file " + path + ": " + std::strerror(errno) +
                 "; FARANDOLE_SECRET_FILE may name another, FARANDOLE_SECRET hold the secret.");
}

std::string octal(mode_t mode) {
  char text[8];
  std::snprintf(text, sizeof text, "%04o", static_cast<unsigned>(mode & 07777));
  return text;
}

/// Checks the open file itself, so that it cannot be exchanged between check and read.
Result<void> check_privacy(int fd, const std::string& path) {
  struct stat status;
  if (fstat(fd, &status) != 0) return system_error("examine", path);
  if (!S_ISREG(status.st_mode)) return invalid("the secret file " + path + " is no plain file.");
  if (status.st_uid != geteuid()) {
    return invalid("the secret file " + path + " belongs to user " + std::to_string(status.st_uid) +
                   "; it must belong to user " + std::to_string(geteuid()) +
                   ", who runs this process.");
  }
  if ((status.st_mode & 0177) != 0) {
    return invalid("the secret file " + path + " has mode " + octal(status.st_mode) +
                   "; it must be 0600, for its owner alone (chmod 600 " + path + ").");
  }
  return {};
}

Result<Secret> read_secret(const std::string& path) {
  Descriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!file) return system_error("open", path);
  if (auto checked = check_privacy(file.fd(), path); !checked) return checked.error();
  Transient buffer(std::string(kFileBytesMax + 1, '\0'));
  std::size_t length = 0;
  while (length < buffer.text.size()) {
    const ssize_t got = read(file.fd(), buffer.text.data() + length, buffer.text.size() - length);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return system_error("read", path);
    if (got == 0) break;
    length += static_cast<std::size_t>(got);
  }
  if (length > kFileBytesMax) {
    return invalid("the secret file " + path + " is longer than " + std::to_string(kFileBytesMax) +
                   " bytes.");
  }
  std::string_view secret = std::string_view(buffer.text).substr(0, length);
  while (secret.ends_with('\n') || secret.ends_with('\r')) secret.remove_suffix(1);
  if (secret.empty()) return invalid("the secret file " + path + " is empty.");
  return Secret(secret);
}

Result<std::string> user_folder() {
  const char* config = std::getenv("XDG_CONFIG_HOME");
  if (config != nullptr && *config == '/') return std::string(config) + "/farandole";
  const char* home = std::getenv("HOME");
  if (home != nullptr && *home == '/') return std::string(home) + "/.config/farandole";
  std::string buffer(16384, '\0');
  passwd entry{};
  passwd* found = nullptr;
  if (getpwuid_r(geteuid(), &entry, buffer.data(), buffer.size(), &found) == 0 && found) {
    return std::string(entry.pw_dir) + "/.config/farandole";
  }
  return invalid("this user has no home directory for a secret file; set FARANDOLE_SECRET.");
}

Result<void> make_folders(const std::string& path) {
  for (std::size_t at = path.find('/', 1);; at = path.find('/', at + 1)) {
    const std::string part = path.substr(0, at);
    if (mkdir(part.c_str(), 0700) != 0 && errno != EEXIST) return system_error("make", part);
    if (at == std::string::npos) return {};
  }
}

Result<void> write_file(const std::string& path, const std::string& text) {
  Descriptor file(open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  if (!file) return system_error("create", path);
  const bool written =
      ::write(file.fd(), text.data(), text.size()) == static_cast<ssize_t>(text.size()) &&
      fsync(file.fd()) == 0;
  if (!written) return system_error("write", path);
  return {};
}

/// Writes the whole file under a name of its own first and then puts it in place, unless another
/// process was faster, so that no process ever reads half a secret.
Result<void> create_secret(const std::string& folder, const std::string& path) {
  if (auto made = make_folders(folder); !made) return made.error();
  auto bytes = random_bytes(kSecretBytes);
  auto suffix = random_bytes(8);
  if (!bytes) return bytes.error();
  if (!suffix) return suffix.error();
  const std::string draft = path + "." + hexadecimal(*suffix);
  const Transient secret(*std::move(bytes));
  Transient line(hexadecimal(secret.text));
  line.text += '\n';
  if (auto written = write_file(draft, line.text); !written) {
    unlink(draft.c_str());
    return written.error();
  }
  bool placed = link(draft.c_str(), path.c_str()) == 0 || errno == EEXIST;
  if (!placed) {  // a file system without hard links
    placed = renameat2(AT_FDCWD, draft.c_str(), AT_FDCWD, path.c_str(), RENAME_NOREPLACE) == 0 ||
             errno == EEXIST;
  }
  Result<void> outcome;
  if (!placed) outcome = system_error("place", path);
  unlink(draft.c_str());
  return outcome;
}

Result<Secret> user_secret() {
  auto folder = user_folder();
  if (!folder) return folder.error();
  const std::string path = *folder + "/secret";
  if (access(path.c_str(), F_OK) != 0) {
    if (auto created = create_secret(*folder, path); !created) return created.error();
  }
  return read_secret(path);
}

/// Advice that an old kernel does not know has no effect there.
char* map_secret(std::size_t bytes) {
  void* const base =
      mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (base == MAP_FAILED) throw std::bad_alloc();
  madvise(base, bytes, MADV_DONTDUMP);
  madvise(base, bytes, MADV_WIPEONFORK);
  return static_cast<char*>(base);
}

}  // namespace

Secret::Secret(std::string_view text) : size_(text.size()) {
  if (text.empty()) return;
  bytes_ = std::shared_ptr<char>(map_secret(size_), [size = size_](char* base) {
    explicit_bzero(base, size);
    munmap(base, size);
  });
  std::memcpy(bytes_.get(), text.data(), size_);
}

Transient::~Transient() {
  explicit_bzero(text.data(), text.size());
}

std::string hexadecimal(std::string_view bytes) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string text;
  text.reserve(2 * bytes.size() + 1);
  for (const char byte : bytes) {
    text += kDigits[static_cast<unsigned char>(byte) >> 4];
    text += kDigits[static_cast<unsigned char>(byte) & 15];
  }
  return text;
}

Result<std::string> random_bytes(std::size_t count) {
  std::string bytes(count, '\0');
  std::size_t done = 0;
  while (done < count) {
    const ssize_t got = getrandom(bytes.data() + done, count - done, 0);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) {
      return Error{ErrorKind::kInternal,
                   std::string("the system gave no random bytes: ") + std::strerror(errno)};
    }
    done += static_cast<std::size_t>(got);
  }
  return bytes;
}

Result<Secret> job_secret() {
  auto value = text_setting("FARANDOLE_SECRET");
  if (!value) return value.error();
  if (const Transient direct(*std::move(value)); !direct.text.empty()) return Secret(direct.text);
  auto file = text_setting("FARANDOLE_SECRET_FILE");
  if (!file) return file.error();
  return file->empty() ? user_secret() : read_secret(*file);
}

}  // namespace farandole
