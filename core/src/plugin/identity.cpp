// The identity of a plugin is read from its file before it is opened: opening runs static initialisers, and those of a
// plugin for another core may do anything.
#include "plugin/identity.hpp"

#include <elf.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <vector>

#include "espalier/abi.hpp"
#include "espalier/error.hpp"

namespace espalier {

namespace {

constexpr std::string_view kSection = "espalier_id";
constexpr std::string_view kFirstLine = "espalier-plugin";

#if defined(__x86_64__)
constexpr Elf64_Half kMachine = EM_X86_64;
#elif defined(__aarch64__)
constexpr Elf64_Half kMachine = EM_AARCH64;
#elif defined(__powerpc64__)
constexpr Elf64_Half kMachine = EM_PPC64;
#elif defined(__riscv)
constexpr Elf64_Half kMachine = EM_RISCV;
#elif defined(__s390x__)
constexpr Elf64_Half kMachine = EM_S390;
#endif
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
constexpr unsigned char kByteOrder = ELFDATA2LSB;
#else
constexpr unsigned char kByteOrder = ELFDATA2MSB;
#endif

std::string machine_text(Elf64_Half machine) {
  switch (machine) {
    case EM_X86_64:
      return "x86-64";
    case EM_386:
      return "32-bit x86";
    case EM_AARCH64:
      return "AArch64";
    case EM_PPC64:
      return "PowerPC64";
    case EM_RISCV:
      return "RISC-V";
    case EM_S390:
      return "s390x";
    default:
      return "machine " + std::to_string(machine);
  }
}

class ElfFile {
 public:
  explicit ElfFile(const std::filesystem::path& path) {
    std::error_code error;
    const auto status = std::filesystem::status(path, error);
    if (!std::filesystem::exists(status)) throw PluginError("no such file");
    if (std::filesystem::is_directory(status)) throw PluginError("is a folder, not a plugin");
    if (!std::filesystem::is_regular_file(status)) throw PluginError("is no regular file");  // a pipe would wait for a writer
    file_.open(path, std::ios::binary);
    // NOLINTNEXTLINE(concurrency-mt-unsafe): glibc's text of an unknown number lies in memory of the calling thread
    if (!file_) throw PluginError("cannot be read: " + std::string(std::strerror(errno)));
    size_ = std::filesystem::file_size(path, error);
    if (error) throw PluginError("cannot be read: " + error.message());
    read_headers();
  }

  std::string section(std::string_view wanted) {
    for (const Elf64_Shdr& header : sections_) {
      if (header.sh_name >= names_.size() || header.sh_type == SHT_NOBITS) continue;
      if (std::string_view(names_.c_str() + header.sh_name) == wanted) return bytes(header.sh_offset, header.sh_size);
    }
    throw PluginError("is a shared library, but not an Espalier plugin: it has no section " + std::string(wanted) +
                      " (the macro ESPALIER_PLUGIN makes it)");
  }

 private:
  void read_headers() {
    std::array<unsigned char, EI_NIDENT> ident{};
    if (size_ < SELFMAG) throw PluginError("is not an ELF file: it has " + std::to_string(size_) + " bytes");
    read(0, ident.data(), std::min<std::uint64_t>(size_, ident.size()));
    if (std::memcmp(ident.data(), ELFMAG, SELFMAG) != 0) {
      throw PluginError("is not an ELF file: a shared library starts with \"\\x7fELF\"");
    }
    Elf64_Ehdr header{};
    read(0, &header, sizeof(header));
    if (ident[EI_CLASS] != ELFCLASS64 || ident[EI_DATA] != kByteOrder || header.e_machine != kMachine) {
      throw PluginError("is built for another machine: " + machine_text(header.e_machine) + ", this program is " +
                        machine_text(kMachine));
    }
    if (header.e_type != ET_DYN) throw PluginError("is no shared library; link it with -shared");
    if (header.e_shnum == 0 || header.e_shentsize != sizeof(Elf64_Shdr) || header.e_shstrndx >= header.e_shnum) {
      throw PluginError(
          "has no section table, so it cannot be identified; do not strip it with --strip-section-headers");
    }
    sections_.resize(header.e_shnum);
    read(header.e_shoff, sections_.data(), sizeof(Elf64_Shdr) * sections_.size());
    const Elf64_Shdr& names = sections_[header.e_shstrndx];
    names_ = bytes(names.sh_offset, names.sh_size);
  }

  // Offsets and sizes come from a file that may be damaged: nothing is allocated before they are known to lie inside
  // it.
  void check_inside(std::uint64_t offset, std::uint64_t count) const {
    if (offset > size_ || count > size_ - offset) {
      throw PluginError("is truncated: it has " + std::to_string(size_) + " bytes and refers to byte " +
                        std::to_string(offset > size_ ? offset : offset + count) + "; copy or build it again");
    }
  }

  void read(std::uint64_t offset, void* target, std::uint64_t count) {
    check_inside(offset, count);
    file_.seekg(static_cast<std::streamoff>(offset));
    file_.read(static_cast<char*>(target), static_cast<std::streamsize>(count));
    if (!file_) throw PluginError("cannot be read at byte " + std::to_string(offset));
  }

  std::string bytes(std::uint64_t offset, std::uint64_t count) {
    check_inside(offset, count);
    std::string result(count, '\0');
    read(offset, result.data(), count);
    return result;
  }

  std::ifstream file_;
  std::uint64_t size_ = 0;
  std::vector<Elf64_Shdr> sections_;
  std::string names_;
};

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  while (true) {
    const std::size_t end = text.find(separator);
    parts.push_back(text.substr(0, end));
    if (end == std::string_view::npos) return parts;
    text.remove_prefix(end + 1);
  }
}

}  // namespace

PluginIdentity read_identity(const std::filesystem::path& path) {
  const std::string section = ElfFile(path).section(kSection);
  const std::string_view text(section.c_str());  // NOLINT(readability-redundant-string-cstr): up to the zero at its end
  const auto lines = split(text, '\n');
  if (lines.size() < 4 || lines[0] != kFirstLine || lines[1].empty() || lines[2].empty()) {
    throw PluginError("has a damaged identity: section " + std::string(kSection) + " does not hold \"" +
                      std::string(kFirstLine) + "\", build, name and version, a line each");
  }
  return {std::string(lines[1]), std::string(lines[2]), std::string(lines[3])};
}

std::uint64_t hash_file(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::vector<char> block(1U << 16U);
  std::uint64_t hash = 0xcbf29ce484222325U;
  while (file) {
    file.read(block.data(), static_cast<std::streamsize>(block.size()));
    const auto count = static_cast<std::size_t>(file.gcount());
    for (std::size_t i = 0; i < count; i += sizeof(std::uint64_t)) {
      std::uint64_t word = 0;
      std::memcpy(&word, block.data() + i, std::min(sizeof(word), count - i));
      hash = (hash ^ word) * 0x100000001b3U;
      hash ^= hash >> 29U;  // the multiplication moves bits upwards only
    }
  }
  return hash;
}

std::string build_difference(std::string_view plugin_abi_id) {
  const std::string_view core_abi_id = ESPALIER_ABI_ID;
  if (plugin_abi_id == core_abi_id) return "";
  const auto core = split(core_abi_id, ' ');
  const auto plugin = split(plugin_abi_id, ' ');
  std::string differs;
  for (std::size_t i = 0; i < std::max(core.size(), plugin.size()); ++i) {
    const std::string_view here = i < core.size() ? core[i] : "nothing";
    const std::string_view there = i < plugin.size() ? plugin[i] : "nothing";
    if (here == there) continue;
    differs += (differs.empty() ? "" : ", ") + std::string(there) + " against " + std::string(here);
  }
  return "is built for another core: " + differs + " (plugin: \"" + std::string(plugin_abi_id) + "\", this core: \"" +
         std::string(core_abi_id) + "\"); build it again with the headers of this core and the same settings";
}

}  // namespace espalier
