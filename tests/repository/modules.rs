//! The modules of a crate, and which of them use each other: read from the tokens of its files.

use proc_macro2::{Delimiter, TokenStream, TokenTree};
use std::collections::{BTreeMap, BTreeSet};

/// The names of a module from the root of its crate, whose own path is empty.
pub type Path = Vec<String>;

/// Which children of a module, each with all that is inside it, use which others.
pub type Uses = BTreeMap<String, BTreeSet<String>>;

/// A crate without its unit tests.
#[derive(Debug, Default)]
pub struct Crate {
    modules: BTreeMap<Path, Module>,
}

#[derive(Debug, Default)]
struct Module {
    /// The names of the items that the module declares.
    items: BTreeSet<String>,
    /// The names that `use` declares at the level of the module, with their paths. `*` has all
    /// paths of `use path::*`.
    aliases: BTreeMap<String, Vec<Path>>,
    /// All paths that begin with `crate`, `self` or `super`, from the root of the crate.
    paths: BTreeSet<Path>,
}

/// A module that is another file.
struct Declared {
    name: String,
    /// The arguments of `#[path]`: which file it is may depend on the target.
    files: Vec<String>,
}

impl Crate {
    /// The crate with these root files, the program and the library of a package. `read` returns
    /// the text of a file.
    pub fn read<'a>(roots: &[&str], read: impl Fn(&str) -> Option<&'a str>) -> Crate {
        let mut all = Crate::default();
        // Files to read, with the folders of their modules.
        let folder_of =
            |file: &str| file.rsplit_once('/').map_or(String::new(), |(folder, _)| folder.to_owned());
        let mut files: Vec<(Path, String, String)> =
            roots.iter().map(|root| (Path::new(), root.to_string(), folder_of(root))).collect();
        while let Some((module, file, folder)) = files.pop() {
            let text = read(&file).unwrap_or_else(|| panic!("no file {file}"));
            let tokens: TokenStream = text.parse().unwrap_or_else(|e| panic!("{file}: {e}"));
            for (parent, declared) in all.add(&module, tokens) {
                let below = parent[module.len()..].join("/");
                let folder = if below.is_empty() { folder.clone() } else { format!("{folder}/{below}") };
                let name = &declared.name;
                let usual = [format!("{folder}/{name}.rs"), format!("{folder}/{name}/mod.rs")];
                let found: Vec<String> = match declared.files.is_empty() {
                    true => usual.into_iter().filter(|file| read(file).is_some()).collect(),
                    false => declared
                        .files
                        .iter()
                        .map(|path| normal(&format!("{}/{path}", folder_of(&file))))
                        .collect(),
                };
                assert!(!found.is_empty(), "{file}: no file of the module {name}");
                let module = [&parent[..], std::slice::from_ref(name)].concat();
                files.extend(found.into_iter().map(|found| {
                    let inside = found.strip_suffix("/mod.rs").unwrap_or(found.trim_end_matches(".rs"));
                    (module.clone(), found.clone(), inside.to_owned())
                }));
            }
        }
        all
    }

    /// The number of modules.
    pub fn len(&self) -> usize {
        self.modules.len()
    }

    /// Reads the items of `module`. Returns the modules in other files that it declares, and the
    /// modules that declare them.
    fn add(&mut self, module: &[String], tokens: TokenStream) -> Vec<(Path, Declared)> {
        self.modules.entry(module.to_vec()).or_default();
        let tokens: Vec<TokenTree> = tokens.into_iter().collect();
        let mut declared = Vec::new();
        let (mut at, mut attributes) = (0, Vec::new());
        while at < tokens.len() {
            let rest = &tokens[at..];
            if let [TokenTree::Punct(hash), TokenTree::Group(group), ..] = rest
                && hash.as_char() == '#'
            {
                attributes.push(group.stream().to_string());
                at += 2;
                continue;
            }
            if matches!(rest, [hash, not, TokenTree::Group(_), ..] if is(hash, "#") && is(not, "!")) {
                at += 3;
                continue;
            }
            let is_end = |token: &TokenTree| match token {
                TokenTree::Punct(punct) => punct.as_char() == ';',
                TokenTree::Group(group) => group.delimiter() == Delimiter::Brace,
                _ => false,
            };
            // A group ends a declaration, but not a `use`.
            let is_use = rest.iter().take_while(|token| !is_end(token)).any(|token| is(token, "use"));
            let end = match is_use {
                true => rest.iter().position(|token| is(token, ";")),
                false => rest.iter().position(is_end),
            };
            let item = &rest[..end.map_or(rest.len(), |end| end + 1)];
            at += item.len();
            if !attributes.iter().any(|attribute| is_test(attribute)) {
                declared.extend(self.add_item(module, item, &attributes));
            }
            attributes.clear();
        }
        declared
    }

    fn add_item(
        &mut self,
        module: &[String],
        item: &[TokenTree],
        attributes: &[String],
    ) -> Vec<(Path, Declared)> {
        const KEYWORDS: [&str; 10] =
            ["mod", "struct", "enum", "union", "trait", "fn", "const", "static", "type", "macro_rules"];
        const BETWEEN: [&str; 4] = ["fn", "unsafe", "extern", "mut"];
        let words: Vec<String> = item.iter().map(ToString::to_string).filter(|word| word != "!").collect();
        let is_name =
            |pair: &&[String]| KEYWORDS.contains(&pair[0].as_str()) && !BETWEEN.contains(&pair[1].as_str());
        let (keyword, name) =
            words.windows(2).find(is_name).map(|pair| (pair[0].as_str(), pair[1].clone())).unzip();
        if let (Some("mod"), Some(name)) = (keyword, &name) {
            let inside = [module, std::slice::from_ref(name)].concat();
            if let Some(TokenTree::Group(group)) = item.last() {
                return self.add(&inside, group.stream());
            }
            let files = attributes.iter().flat_map(|attribute| attribute.split("path = \"").skip(1));
            let files = files.filter_map(|rest| rest.split('"').next()).map(String::from).collect();
            return vec![(module.to_vec(), Declared { name: name.clone(), files })];
        }
        let mut paths = Vec::new();
        collect(item, &mut paths);
        let is_use = item.iter().position(|token| is(token, "use"));
        if let Some(at) = is_use {
            let mut tree = Vec::new();
            use_tree(&item[at + 1..], &[], &mut tree);
            for (name, path) in tree {
                let path = absolute(module, &path).unwrap_or_else(|| [module, &path].concat());
                self.module(module).aliases.entry(name).or_default().push(path);
            }
        } else if let Some(name) = name {
            if keyword == Some("macro_rules") {
                self.module(&[])
                    .aliases
                    .entry(name.clone())
                    .or_default()
                    .push([module, std::slice::from_ref(&name)].concat());
            }
            self.module(module).items.insert(name);
        }
        let paths = paths.iter().filter_map(|path| absolute(module, path));
        self.module(module).paths.extend(paths);
        Vec::new()
    }

    fn module(&mut self, path: &[String]) -> &mut Module {
        self.modules.entry(path.to_vec()).or_default()
    }

    /// The module that declares the item, or is the module, to which `path` leads.
    fn resolve(&self, path: &[String], depth: usize) -> Option<Path> {
        let mut module = Path::new();
        for (number, name) in path.iter().enumerate() {
            let inside = [&module[..], std::slice::from_ref(name)].concat();
            if self.modules.contains_key(&inside) {
                module = inside;
                continue;
            }
            let here = &self.modules[&module];
            if here.items.contains(name) || depth == 0 {
                break;
            }
            let follow =
                |start: &Path, rest: &[String]| self.resolve(&[&start[..], rest].concat(), depth - 1);
            if let Some(alias) = here.aliases.get(name) {
                let rest = &path[number + 1..];
                return alias.iter().find_map(|alias| follow(alias, rest));
            }
            let all = here.aliases.get("*").into_iter().flatten();
            return all
                .filter_map(|start| self.resolve(start, depth - 1))
                .find(|start| {
                    self.modules[start].items.contains(name) || self.modules[start].aliases.contains_key(name)
                })
                .and_then(|start| follow(&start, &path[number..]))
                .or_else(|| (number > 0 || !module.is_empty()).then_some(module));
        }
        Some(module)
    }

    /// For each module with children, by its path.
    pub fn uses(&self) -> BTreeMap<String, Uses> {
        const MOST_ALIASES: usize = 8;
        let mut uses: BTreeMap<String, Uses> = BTreeMap::new();
        for (module, content) in &self.modules {
            if let Some((name, parent)) = module.split_last() {
                uses.entry(parent.join("::")).or_default().entry(name.clone()).or_default();
            }
            for target in content.paths.iter().filter_map(|path| self.resolve(path, MOST_ALIASES)) {
                let common = module.iter().zip(&target).take_while(|(a, b)| a == b).count();
                if let (Some(user), Some(used)) = (module.get(common), target.get(common)) {
                    let children = uses.entry(module[..common].join("::")).or_default();
                    children.entry(user.clone()).or_default().insert(used.clone());
                }
            }
        }
        uses
    }
}

fn is(token: &TokenTree, text: &str) -> bool {
    match token {
        TokenTree::Ident(ident) => ident == text,
        TokenTree::Punct(punct) => text.len() == 1 && text.starts_with(punct.as_char()),
        _ => false,
    }
}

/// Whether an attribute compiles its item for tests only.
fn is_test(attribute: &str) -> bool {
    let squeezed: String = attribute.chars().filter(|c| !c.is_whitespace()).collect();
    let is_only_test =
        |condition: &str| condition.replace("not(test)", "").contains("test") && !condition.contains("any(");
    squeezed == "test" || squeezed.strip_prefix("cfg(").is_some_and(is_only_test)
}

/// `path` from the root, if it begins with `crate`, `self` or `super` in `module`.
fn absolute(module: &[String], path: &[String]) -> Option<Path> {
    let supers = path.iter().take_while(|name| *name == "super" || *name == "self").count();
    match path.first()?.as_str() {
        "crate" => Some(path[1..].to_vec()),
        "self" | "super" => {
            let up = path[..supers].iter().filter(|name| *name == "super").count();
            let parent = &module[..module.len().checked_sub(up)?];
            Some([parent, &path[supers..]].concat())
        }
        _ => None,
    }
}

/// Adds the paths in `tokens`, also those inside groups, of at least two names.
fn collect(tokens: &[TokenTree], paths: &mut Vec<Path>) {
    let mut at = 0;
    while at < tokens.len() {
        match &tokens[at] {
            TokenTree::Group(group) => collect(&group.stream().into_iter().collect::<Vec<_>>(), paths),
            TokenTree::Ident(first) if ["crate", "self", "super"].iter().any(|root| first == root) => {
                let mut found = Vec::new();
                use_tree(&tokens[at..], &[], &mut found);
                paths.extend(found.into_iter().map(|(_, path)| path).filter(|path| path.len() > 1));
                while matches!(tokens.get(at + 1), Some(token) if is(token, ":")) && at + 3 < tokens.len() {
                    at += 3;
                }
                // The group of a tree is done, too.
            }
            _ => {}
        }
        at += 1;
    }
}

/// Adds the names that a tree of `use` declares, and their paths.
fn use_tree(tokens: &[TokenTree], before: &[String], found: &mut Vec<(String, Path)>) {
    let mut path = before.to_vec();
    let mut tokens = tokens.iter();
    while let Some(token) = tokens.next() {
        match token {
            TokenTree::Ident(name) => path.push(name.to_string()),
            TokenTree::Group(group) => {
                let inner: Vec<TokenTree> = group.stream().into_iter().collect();
                inner.split(|token| is(token, ",")).for_each(|tree| use_tree(tree, &path, found));
                return;
            }
            token if is(token, "*") => {
                found.push(("*".to_owned(), path));
                return;
            }
            _ => break,
        }
        let rest: Vec<&TokenTree> = tokens.clone().take(2).collect();
        match rest[..] {
            [a, b] if is(a, ":") && is(b, ":") => {
                tokens.next();
                tokens.next();
            }
            [a, name] if is(a, "as") => {
                found.push((name.to_string(), path));
                return;
            }
            _ => break,
        }
    }
    if path.last().is_some_and(|name| name == "self") {
        path.pop();
    }
    if let Some(name) = path.last().cloned() {
        found.push((name, path));
    }
}

/// A path without `..`.
fn normal(path: &str) -> String {
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/') {
        match part {
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    parts.join("/")
}
